"""A model with its weight files: what the architecture counts, what the files hold, and where each number is from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.confirm import BESIDE, LAYER, confirm_attention, contradiction, unread_elements
from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.formats import FORMATS, Format
from roofcast.modelspec.packed import Width, width_of
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.stored import parameter_elements
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.components import Stored
    from roofcast.modelspec.ggml_mix import Mix, MixBytes
    from roofcast.modelspec.implied import Implied
    from roofcast.modelspec.kv_hint import KvHint
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.source import Checkpoint
    from roofcast.modelspec.weights import WeightFiles

ASSUMED_DTYPE: Final = FORMATS["bf16"]
# a plain string: re compiles and keeps it on first use
_MTP: Final = r"(?:^|\.)(?:mtp|nextn)\w*\."


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with its provenance, and what had to be assumed or should be known about it.

    Args:
        value: None where it cannot be told.
        provenance: `header`, `config` or `assumed`; None with the value.
        assumption: what was assumed for it, in one line.
        warning: what the reader should know, in one line.
    """

    value: float | None
    provenance: str | None
    assumption: str | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A resolved model.

    Args:
        name, source: as shown, and where it came from.
        spec: its architecture.
        files: what its weight files hold; None without headers.
        files_problem: why headers that exist could not be read; None where nothing went wrong.
        parameters_in_files: parameters that the weight files hold, as `count_in_files`.
        decoder_in_files: the same without multi-token prediction; None where no tensor names tell.
        against: what the tensors say against the config; None where they agree or do not tell.
        encoder_tokens: tokens asked for of an encoder or of images; None where none were.
        implied: bytes that the config implies of quantised weights, and of others where tensors are at hand.
        implied_problem: why quantised ones cannot be told; None where they can.
        facts: where its hyperparameters are from: `config`, or the `header` of a GGUF file.
        left_out: projector files beside it, which are not read.
        config: keys of its config.json.
        stored: what its weight files hold by component, where tensors are held against what the config implies.
        kv_hint: format that the checkpoint asks for its cache; None where it asks for none.
        commit: of the Hub's repo that was read; None of what is not there.
    """

    name: str
    source: str
    spec: ModelSpec
    files: WeightFiles | None
    files_problem: str | None
    parameters_in_files: int | None = None
    decoder_in_files: int | None = None
    against: str | None = None
    encoder_tokens: int | None = None
    implied: Implied | None = None
    implied_problem: str | None = None
    kv_hint: KvHint | None = None
    stored: tuple[Stored, ...] = ()
    facts: str = "config"
    left_out: tuple[str, ...] = ()
    commit: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def parameters(self) -> Amount:
        """Parameters as the reference implementation counts them. [parameter]

        Those of the files where the class is not known, or what stands beside its text model is not.
        """
        if self.spec.known_class and self.spec.total_known:
            return Amount(self.spec.parameters, self.facts, warning=self._difference())
        held = self.parameters_in_files if self.spec.drafting else self.decoder_in_files
        provenance = "header" if held else None
        if self.spec.known_class:
            return Amount(held, provenance, warning=self._unknown_weights())
        what = f"{self.name}: model_type {quoted(self.spec.model_type)} is not known"
        return Amount(
            held,
            provenance,
            assumption=f"{what}: its feed-forward is taken as gated and its layers as alike but for what the keys say",
            warning=f"{what}: parameters are those of the weight files",
        )

    def _unknown_weights(self) -> str:
        """What is known of a model some of whose weights are not, and what would tell the rest."""
        spec, files = self.spec, self.decoder_in_files
        beside = (
            f"what model_type {quoted(spec.unknown_towers)} holds beside its text model" if spec.unknown_towers else ""
        )
        keys = f"the weights that {', '.join(spec.uncounted)} add" if spec.uncounted else ""
        what = f"{self.name}: {' and '.join(filter(None, (beside, keys)))} {'are' if keys else 'is'} not known"
        text = "" if spec.uncounted else f"; the text model alone has {spec.parameters:,} parameters"
        if files:
            return f"{what}: parameters are those of the weight files{text}"
        return f"{what}: parameters cannot be told without safetensors headers{text}"

    @property
    def active_parameters(self) -> int | None:
        """Parameters that work on one token; None of an unknown class with experts, whose files do not tell them."""
        if not self.spec.known_class:
            return None if self.spec.components["experts"] else self.decoder_in_files
        if not self.spec.total_known:
            held = self.parameters.value
            idle = self.spec.parameters - self.spec.active_parameters
            return None if held is None else int(held) - idle
        return self.spec.active_parameters

    def weight_bytes(self, requested: Requested | None) -> Amount:
        """Bytes of the weights, as stored or as `requested` for every parameter in the files. [B]

        Requested: P_files x bytes an element, with the reference count where there are no headers; of a mix the bytes
        that llama-quantize writes.
        """
        if requested is None:
            return self._stored_bytes()
        return self._requested_bytes(requested) if isinstance(requested, Format) else self._mixed_bytes(requested)

    def _stored_bytes(self) -> Amount:
        if self.files is not None:
            return Amount(self.files.bytes, "header", warning=self._scales_warning())
        if not self.spec.total_known:
            return Amount(None, None, warning=self._unknown_weights())
        if self.implied is not None:
            return Amount(self.implied.total, self.facts, warning=self._mtp_warning())
        if self.spec.quantization is not None:
            text = f"the bytes of its {self.spec.quantization} weights cannot be told: {self.implied_problem}"
            return Amount(None, None, warning=f"{self.name}: {text}; --weights FORMAT asks for another format")
        stored = FORMATS[self.spec.dtype] if self.spec.dtype else ASSUMED_DTYPE
        value = self.spec.parameters * stored.bytes_per_element
        if self.spec.dtype:
            return Amount(value, self.facts, warning=self._mtp_warning())
        assumption = f"{self.name}: its config states no torch_dtype; weights taken as {stored.name}"
        return Amount(value, "assumed", assumption=assumption, warning=self._mtp_warning())

    def _requested_bytes(self, requested: Format) -> Amount:
        in_files = self.parameters_in_files
        if in_files is not None:
            return Amount(in_files * requested.bytes_per_element, "header", warning=self._scales_warning())
        parameters = self.parameters.value
        if parameters is None and self.files is None:
            return Amount(None, None, warning=self.parameters.warning)
        if parameters is None:
            text = (
                "packed weight files hide how many parameters they hold; ask for the bytes as stored, without --weights"
            )
            return Amount(None, None, warning=f"{self.name}: {text}")
        return Amount(parameters * requested.bytes_per_element, self.facts, warning=self._mtp_warning())

    @property
    def second_head(self) -> bool:
        """Whether the weight files hold the head apart from the embedding, although the two are one."""
        held = self.decoder_in_files or (None if self.spec.mtp_layers else self.parameters_in_files)
        apart = self.spec.vocab * self.spec.hidden
        return self.spec.tied and held is not None and held - replace(self.spec, drafting=False).parameters == apart

    def as_mix(self, name: str) -> MixBytes:
        """Bytes of the file that llama-quantize makes of the model under that name, with the head that its files hold.

        Raises:
            UndeterminedModelError: as `mix_bytes`.
        """
        from roofcast.modelspec.ggml_mix import mix_bytes  # noqa: PLC0415 - few ask for one

        if not self.second_head:
            return mix_bytes(self.spec, name)
        made, without = mix_bytes(replace(self.spec, tied=False), name), mix_bytes(self.spec, name)
        more = (made.total - without.total) / 1e9
        said = (
            f"its head, which weight files hold apart, is taken as converted too: a file without has {more:.2f} GB less"
        )
        return replace(made, assumptions=(*made.assumptions, said))

    def _mixed_bytes(self, mix: Mix) -> Amount:
        """Bytes of a file that llama-quantize makes, where the architecture is known to the last matrix."""
        if not (self.spec.known_class and self.spec.total_known):
            text = f"what llama-quantize makes of it as {mix.name} cannot be told without its class"
            return Amount(None, None, warning=self.parameters.warning or f"{self.name}: {text}")
        try:
            made = self.as_mix(mix.name)
        except UndeterminedModelError as error:
            return Amount(None, None, warning=f"{self.name}: {error}")
        said = "; ".join(made.assumptions)
        assumption = f"{self.name}: {said}" if said else None
        return Amount(made.total, self.facts, assumption=assumption, warning=self._undrafted())

    def _scales_warning(self) -> str | None:
        """The Hub's summary does not tell quantisation scales from parameters."""
        if self.files is None or self.files.tensors or self.files.origin != "hub summary":
            return None
        if self.spec.quantization is None or self.parameters_in_files is None:
            return None
        return f"{self.name}: parameters are counted by the Hub's summary, quantisation scales among them"

    def _undrafted(self) -> str | None:
        """What a file of llama.cpp holds of draft layers that do not count."""
        if not self.spec.mtp_layers or self.spec.drafting:
            return None
        return (
            f"{self.name}: draft layers ({self.spec.mtp_layers}) are not in these bytes; llama.cpp's files leave them out, "
            f"but for those of GLM-4.5 and its kin, which hold them without loading them"
        )

    def _mtp_warning(self) -> str | None:
        """Where the files do not tell, multi-token-prediction layers that they hold are not in the bytes."""
        if not self.spec.mtp_layers or self.spec.drafting or self.parameters_in_files is not None:
            return None
        return (
            f"{self.name}: weights are counted from config.json; multi-token-prediction layers that the published "
            f"files may hold too ({self.spec.mtp_layers}) are not in them"
        )

    def _difference(self) -> str | None:
        """What the files hold against what the architecture counts, where the two do not explain each other."""
        if self.against:
            return f"{self.name}: {self.against}; one of the two is wrong, and so are the numbers that rest on it"
        held = self.decoder_in_files
        if held is None and self.files is not None and self._plain_summary():
            held = self.parameters_in_files
        if held is None:
            return None
        counted = replace(self.spec, drafting=False).parameters
        held -= unread_elements(self.spec, self.files) if self.files else 0
        head = self.spec.vocab * self.spec.hidden * self.spec.tied  # a tied head may be stored a second time
        routers = self.spec.router_bias_parameters  # files and reference differ on whether they are parameters
        padded = self.spec.vocab - (self.spec.head_rows or self.spec.vocab)  # rows of the head that are not loaded
        if held - counted in {0, head, -routers, head - routers, padded * self.spec.hidden}:
            return None
        return (
            f"{self.name}: the weight files hold {held:,} parameters{self._of_what()}, the architecture counts "
            f"{counted:,}; one of the two is not what {'its metadata' if self.facts == 'header' else 'config.json'} says"
        )

    def _of_what(self) -> str:
        """What is counted on both sides."""
        return " of the decoder and what stands beside it" if self.spec.towers else " of the decoder"

    def _plain_summary(self) -> bool:
        """Whether only the Hub's summary is known, and nothing but the decoder's parameters can be in it."""
        summary = self.files is not None and self.files.origin == "hub summary"
        return summary and self.spec.quantization is None and not self.spec.mtp_layers


def load_model(checkpoint: Checkpoint, *, drafting: bool = False, encoder_tokens: int | None = None) -> Model:
    """The model of a checkpoint.

    Args:
        checkpoint: config and weight files.
        drafting: whether its multi-token-prediction layers are in use, and count.
        encoder_tokens: tokens that the decoder's cross attention keeps, of a model whose config does not bound them.

    Raises:
        MalformedModelError, UndeterminedModelError: as `build_spec`, with the source named.
    """
    by_tensor = bool(checkpoint.weights and checkpoint.weights.tensors)
    try:
        spec = build_spec(checkpoint.config, counted_in_files=by_tensor, encoder_tokens=encoder_tokens)
        spec = replace(spec, drafting=drafting)
        if checkpoint.weights is not None and not spec.known_class:
            confirm_attention(spec, checkpoint.weights)
        _ = spec.kept  # a state that cannot be told is said here, with the source
        implied, problem = _implied(spec, checkpoint)
    except ModelError as error:
        raise type(error)(f"{checkpoint.source}: {error}") from error
    files, layers = checkpoint.weights, len(spec.layers)
    width = width_of(checkpoint.config) if files else Width()
    counted = count_in_files(files, checkpoint.scales, width)
    return Model(
        name=checkpoint.name,
        source=checkpoint.source,
        spec=spec,
        files=files,
        files_problem=checkpoint.weights_problem,
        parameters_in_files=counted,
        decoder_in_files=_count_decoder(files, layers, width, counted),
        against=contradiction(spec, files) if files and spec.known_class else None,
        encoder_tokens=encoder_tokens,
        implied=implied,
        implied_problem=problem,
        stored=_stored_components(files, layers) if implied else (),
        kv_hint=_kv_hint(spec, checkpoint),
        facts=checkpoint.facts,
        left_out=checkpoint.left_out,
        commit=checkpoint.commit,
        config=checkpoint.config,
    )


def _stored_components(files: WeightFiles | None, layers: int) -> tuple[Stored, ...]:
    if files is None or not files.tensors:
        return ()
    from roofcast.modelspec.components import stored_components  # noqa: PLC0415 - few models are read by tensor

    return stored_components(files, layers)


def _kv_hint(spec: ModelSpec, checkpoint: Checkpoint) -> KvHint | None:
    """The cache format that the checkpoint's quantisation asks for."""
    if spec.quantization is None:
        return None
    from roofcast.modelspec.kv_hint import kv_hint  # noqa: PLC0415 - few models are quantised
    from roofcast.modelspec.quantization import method_of, stated  # noqa: PLC0415 - likewise

    found = stated(checkpoint.config, len(spec.layers))
    return kv_hint(found.block, method_of(found)) if found else None


def _implied(spec: ModelSpec, checkpoint: Checkpoint) -> tuple[Implied | None, str | None]:
    """Bytes that the config implies of quantised weights, or why they cannot be told; of plain ones to hold files against."""
    known, tensors = spec.known_class and spec.total_known, bool(checkpoint.weights and checkpoint.weights.tensors)
    if not known or not (spec.quantization or tensors):
        return None, "its class, or what stands beside it, is not known" if spec.quantization else None
    from roofcast.modelspec.implied import implied_bytes, plain_bytes  # noqa: PLC0415 - few models are quantised
    from roofcast.modelspec.quantization import read_packing  # noqa: PLC0415 - likewise

    if spec.quantization is None:
        return plain_bytes(spec), None
    try:
        packing = read_packing(checkpoint.config, len(spec.layers))
        return (implied_bytes(spec, packing), None) if packing else (None, None)
    except UndeterminedModelError as error:
        return None, str(error)
    except MalformedModelError as error:  # the files tell their bytes all the same
        if checkpoint.weights is None:
            raise
        return None, str(error)


def count_in_files(files: WeightFiles | None, scales: int, width: Width) -> int | None:
    """Parameters that the weight files hold; None without headers or where packed integers hide them. [parameter]

    The sum of the elements of every stored tensor that is trained; words of packed integers count for all that they
    hold. Quantisation scales are not counted, but where only the Hub's summary by dtype is known: it does not tell them
    apart (in DeepSeek-V3 they are 0.006 %).

    Args:
        files: what the files hold.
        scales: elements that are scales, where the catalogue knows.
        width: bits and group of packed integers, where the config says them.
    """
    if files is None:
        return None
    return parameter_elements(files, scales=scales if files.origin == "catalogue" else 0, width=width)


def _count_decoder(files: WeightFiles | None, layers: int, width: Width, everything: int | None) -> int | None:
    """Parameters in the files but for multi-token prediction; None where they do not tell."""
    if files is None or not files.tensors:
        return None
    decoder = tuple(t for t in files.tensors if _in_decoder(t.name, layers))
    if len(decoder) == len(files.tensors):
        return everything
    return parameter_elements(replace(files, tensors=decoder), width=width)


def _in_decoder(tensor: str, layers: int) -> bool:
    """Whether a tensor belongs to what the reference implementation counts: the decoder, or a tower beside it.

    >>> _in_decoder("model.layers.61.eh_proj.weight", 61), _in_decoder("model.layers.60.mlp.gate.weight", 61)
    (False, True)
    >>> _in_decoder("vision_tower.encoder.layers.61.mlp.fc1.weight", 61)
    True
    """
    if re.search(_MTP, tensor):
        return False
    match = re.search(LAYER, tensor)
    return not match or int(match["layer"]) < layers or bool(re.search(BESIDE, tensor))
