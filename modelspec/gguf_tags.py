"""Which GGUF file of a repo is meant: by its name, or by the tag that says how it is quantised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.gguf_files import SUFFIX, models_among, parts_of
from roofcast.modelspec.nearest import nearest
from roofcast.modelspec.strictjson import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SPLIT: Final = r"-\d{1,9}-of-\d{1,9}$"
# what llama.cpp and the people who publish GGUF files call their mixes; UD- are Unsloth's own
_MIX: Final = r"(?i:(?:UD-)?(?:I?Q\d_\w{1,9}|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32|FP16|FP32))"
_IN_NAME: Final = rf"(?:^|[-._])(?P<tag>{_MIX})(?=$|[-.])"
_ASKABLE: Final = r"[\w.+-]{1,64}"
_SHOWN: Final = 24  # tags or files that a message lists


@dataclass(frozen=True, slots=True)
class GgufName:
    """What MODEL asks of a repo: one file, or the model with a tag.

    Args:
        repo: org/name.
        tag: as in org/name:Q4_K_M; empty where a file is asked for.
        file: as in org/name/folder/file.gguf; empty where a tag is.
    """

    repo: str
    tag: str = ""
    file: str = ""


def stem_of(file: str) -> str:
    """Return the name of a GGUF file without its ending, and without the number of a part.

    >>> stem_of("m-Q8_0-00001-of-00002.gguf")
    'm-Q8_0'
    """
    return re.sub(_SPLIT, "", file.removesuffix(SUFFIX))


def tag_of(file: str) -> str:
    """Return the tag of a GGUF file: the last mix in its name, else a folder that is called so, else the whole name.

    >>> tag_of("Q8_0/m-00001-of-00002.gguf"), tag_of("m.q4_k_m.gguf"), tag_of("m-UD-IQ2_XXS.gguf"), tag_of("m.gguf")
    ('Q8_0', 'q4_k_m', 'UD-IQ2_XXS', 'm')
    """
    *folders, name = stem_of(file).split("/")
    in_name = [match["tag"] for match in re.finditer(_IN_NAME, name)]
    called_so = [folder for folder in folders if re.fullmatch(_MIX, folder)]
    return (in_name or called_so or [name])[-1]


def has_tag(file: str, tag: str) -> bool:
    """Tell whether a tag, letter case aside, stands between separators in a file's name, or is a folder of it.

    >>> has_tag("m-Q4_K_M.gguf", "q4_k_m"), has_tag("m-Q4_K_M.gguf", "Q4_K"), has_tag("BF16/m-00001-of-00002.gguf", "BF16")
    (True, False, True)
    """
    folder, _, name = stem_of(file).rpartition("/")
    stands = rf"(?:^|[-._]){re.escape(tag)}(?=$|[-.])"
    return re.search(stands, name, re.IGNORECASE) is not None or tag.lower() in folder.lower().split("/")


def tags_among(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of all models among the files of a repo, each once.

    >>> tags_among(["a-Q4_K_M.gguf", "a-Q8_0.gguf", "mmproj-a-F16.gguf", "README.md"])
    ('Q4_K_M', 'Q8_0')
    """
    return tuple(dict.fromkeys(tag_of(plain(first)) for first in models_among(names)))


def projectors(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files that turn images or sounds into tokens: they stand beside a model and are not read.

    >>> projectors(["m-Q8_0.gguf", "mmproj-F16.gguf"])
    ('mmproj-F16.gguf',)
    """
    return tuple(sorted(n for n in names if n.endswith(SUFFIX) and "mmproj" in n.rpartition("/")[2].lower()))


def how_to_ask(repo: str, names: Iterable[str]) -> str:
    """Say how the GGUF files of a repo are asked for.

    >>> how_to_ask("org/name", ["a-Q4_K_M.gguf", "a-Q8_0.gguf"])
    'ask for one of its GGUF files: org/name:Q4_K_M, org/name:Q8_0'
    """
    return f"ask for one of its GGUF files: {_listed(dict.fromkeys(_way(repo, name) for name in models_among(names)))}"


def choose(asked: GgufName, names: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the files of the model that is meant, all parts of it.

    Args:
        asked: the file or the tag.
        names: every file of the repo.
        where: the repo as messages name it.

    Raises:
        MalformedModelError: the file's name counts its parts wrongly.
        UndeterminedModelError: there is none, or more than one, or a part is missing.

    >>> choose(GgufName("org/name", tag="q8_0"), ["a-Q4_K_M.gguf", "a-Q8_0.gguf"], "org/name")
    ('a-Q8_0.gguf',)
    """
    everything = frozenset(names)
    models = models_among(everything)
    if asked.file:
        if asked.file not in everything:
            raise UndeterminedModelError(f"{where}: no file {quoted(asked.file)}{_instead(asked.file, models)}")
        return parts_of(asked.file, everything, where)
    if not models:
        raise UndeterminedModelError(
            f"{where}: it holds no GGUF file of a model; without :{asked.tag} its config is read"
        )
    fitting = [first for first in models if has_tag(first, asked.tag)]
    exact = [first for first in fitting if tag_of(first).lower() == asked.tag.lower()]
    if len(exact) != 1 and len(fitting) > 1:
        shown = _listed([f"{asked.repo}/{plain(first)}" for first in exact or fitting])
        raise UndeterminedModelError(
            f"{where}: {quoted(asked.tag)} fits {len(exact or fitting)} models; give one of {shown}"
        )
    if not fitting:
        tags = tags_among(everything)
        near = nearest(asked.tag.upper(), tags, 1)
        more = f"; nearest: {near[0]}" if near else ""
        raise UndeterminedModelError(
            f"{where}: no GGUF file has the tag {quoted(asked.tag)}{more}; there are {_listed(tags)}"
        )
    return parts_of((exact or fitting)[0], everything, where)


def _way(repo: str, file: str) -> str:
    tag = tag_of(file)
    return f"{repo}:{tag}" if re.fullmatch(_ASKABLE, tag, re.ASCII) else f"{repo}/{plain(file)}"


def _instead(file: str, models: Mapping[str, tuple[str, ...]]) -> str:
    if not models:
        return "; it holds no GGUF file of a model"
    near = nearest(file, [plain(first) for first in models], 3, cutoff=0.0)
    return f"; nearest of {len(models)}: {', '.join(near)}"


def _listed(items: Iterable[str]) -> str:
    shown = list(items)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
