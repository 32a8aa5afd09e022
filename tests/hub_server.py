"""A Hugging Face Hub of our own on loopback, for the real huggingface_hub client: repos, a CDN beside it, and faults.

    with LocalHub() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.safetensors": safetensors({"w": ("BF16", [2, 2])})})
        hub.faults.append(Fault(path="config.json", kind="status", code=503))
        ...
        hub.requests  # what was asked, in order

Weight files are answered with a redirect to another origin, as the Hub does with its content delivery network.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit

from roofcast.modelspec.weights import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAGE = b"<html><body>Welcome to the hotel. Please sign in.</body></html>"
STORED_APART = (".safetensors", ".bin", ".gguf")
PIECE = 1 << 16


@dataclass(frozen=True)
class Sparse:
    """A file of `size` bytes that starts with `start` and goes on with zeros that exist nowhere."""

    start: bytes
    size: int

    def span(self, first: int, end: int) -> bytes:
        """Return bytes first to end (exclusive)."""
        piece = self.start[first:end]
        return piece + bytes(max(0, min(end, self.size) - first - len(piece)))


@dataclass
class Repo:
    """A repo: one commit, its files, and who may read them."""

    files: dict[str, Sparse]
    commit: str
    revisions: tuple[str, ...] = ("main",)
    token: str | None = None  # gated: who sends it may read
    redirect: bool = True
    summary: dict[str, int] | None = None
    copies: bool = False  # whether all headers of an index are given in one answer


@dataclass
class Fault:
    """What goes wrong when a path that ends so is asked for.

    Kinds: status (code, headers, body), silence (no answer for so many seconds), close (no answer at all),
    drop (the body breaks off after so many bytes).
    """

    path: str
    kind: str
    code: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    seconds: float = 30.0
    after: int = 5
    methods: tuple[str, ...] = ("GET", "HEAD")
    times: int = 1 << 30


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    server: str
    method: str
    path: str
    range: str | None
    token: str | None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: LocalHub, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.name = name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what the tests are about."""


class LocalHub:
    """The Hub and its CDN, two servers on two ports of loopback."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.sent = 0  # bytes of bodies
        self.ranges = True
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._servers = {name: _Server(self, name) for name in ("hub", "cdn")}
        # Another host by name as well as by port: either makes it another origin.
        self.url = f"http://127.0.0.1:{self._servers['hub'].server_port}"
        self.cdn = f"http://localhost:{self._servers['cdn'].server_port}"

    def __enter__(self) -> Self:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def clear(self) -> None:
        """Forget repos, faults and requests."""
        self.repos.clear()
        self.faults.clear()
        self.requests.clear()
        self.sent = 0
        self.ranges = True

    def add(self, name: str, files: Mapping[str, bytes | Sparse], **settings: Any) -> Repo:
        """Publish a repo."""
        kept = {f: d if isinstance(d, Sparse) else Sparse(d, len(d)) for f, d in files.items()}
        self.repos[name] = repo = Repo(kept, hashlib.sha1(name.encode()).hexdigest(), **settings)  # noqa: S324
        return repo

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Take the first fault that fits and has not run out."""
        with self.lock:
            for fault in self.faults:
                if path.endswith(fault.path) and method in fault.methods and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def asked(self, end: str, method: str = "GET") -> list[Request]:
        """Return the requests for paths that end so."""
        return [r for r in self.requests if r.method == method and urlsplit(r.path).path.endswith(end)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else head and body of an answer are 40 ms apart
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        """Answer GET, and HEAD like it."""
        hub = self.server.hub
        path = unquote(urlsplit(self.path).path)
        with hub.lock:
            hub.requests.append(
                Request(self.server.name, self.command, self.path, self.headers["Range"], self.headers["Authorization"])
            )
        self.fault = hub.fault_for(self.command, path)
        if self.fault and self.fault.kind in self.SPOILERS:
            self.SPOILERS[self.fault.kind](self, self.fault)
            return
        for pattern, answer in self.ROUTES.items():
            if match := pattern.fullmatch(urlsplit(self.path).path):  # a revision's own slashes are still quoted here
                answer(self, **{name: unquote(part) for name, part in match.groupdict(default="main").items()})
                return
        self._refuse(404, "EntryNotFound")

    do_HEAD = do_GET  # noqa: N815

    def _status(self, fault: Fault) -> None:
        self._reply(fault.code, fault.body, dict(fault.headers))

    def _silence(self, fault: Fault) -> None:
        self.server.hub.closing.wait(fault.seconds)
        self._hang_up(fault)

    def _hang_up(self, _: Fault) -> None:
        self.close_connection = True
        self.connection.close()

    def _resolve(self, repo: str, revision: str, name: str) -> None:
        found = self._readable(repo, revision)
        if found is None:
            return
        commit = {"X-Repo-Commit": found.commit}
        if name not in found.files:
            self._refuse(404, "EntryNotFound", commit)
        elif name.endswith(STORED_APART) and found.redirect:
            size = str(found.files[name].size)
            place = {"Location": f"{self.server.hub.cdn}/store/{repo}/{name}", "X-Linked-Size": size}
            self._reply(302, b"", commit | place | {"X-Linked-Etag": f'"{name}"'})
        else:
            self._file(found.files[name], commit)

    def _store(self, repo: str, name: str) -> None:
        self._file(self.server.hub.repos[repo].files[name], {})

    def _info(self, repo: str, revision: str) -> None:
        found = self._known(repo, revision)
        if found is None:
            return
        summary = {"parameters": found.summary, "total": sum(found.summary.values())} if found.summary else None
        facts = {
            "sha": found.commit,
            "siblings": [{"rfilename": name} for name in found.files],
            "safetensors": summary,
        }
        wanted = parse_qs(urlsplit(self.path).query)
        asked = {*wanted.get("expand", ()), *wanted.get("expand[]", ())}
        chosen = {k: v for k, v in facts.items() if (k in asked or not asked) and v is not None}
        self._reply(200, json.dumps({"id": repo, **chosen}).encode(), {"Content-Type": "application/json"})

    def _copies(self, repo: str, name: str) -> None:
        found = self._readable(repo, "main")
        if found is None:
            return
        if not found.copies or name not in found.files:
            self._refuse(404, "EntryNotFound")
            return
        shards = sorted(set(json.loads(found.files[name].start)["weight_map"].values()))
        headers = {shard: json.loads(found.files[shard].start[8:]) for shard in shards}
        answer = json.dumps({"index": {"metadata": {}}, "headers": headers})
        self._reply(200, answer.encode(), {"Content-Type": "application/json"})

    def _known(self, repo: str, revision: str) -> Repo | None:
        found = self.server.hub.repos.get(repo)
        if found is None:  # the Hub does not tell strangers whether a repo is private or absent
            self._refuse(404 if self.headers["Authorization"] else 401, "RepoNotFound")
            return None
        if revision not in (*found.revisions, found.commit):
            self._refuse(404, "RevisionNotFound")
            return None
        return found

    def _readable(self, repo: str, revision: str) -> Repo | None:
        found = self._known(repo, revision)
        if found and found.token and self.headers["Authorization"] != f"Bearer {found.token}":
            self._refuse(403 if self.headers["Authorization"] else 401, "GatedRepo")
            return None
        return found

    def _file(self, data: Sparse, headers: dict[str, str]) -> None:
        first, end, code = 0, data.size, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
        if asked and self.server.hub.ranges:
            first, end, code = int(asked[1]), min(int(asked[2] or data.size - 1) + 1, data.size), 206
            if first >= data.size:
                self._reply(416, b"", {"Content-Range": f"bytes */{data.size}"})
                return
            headers = headers | {"Content-Range": f"bytes {first}-{end - 1}/{data.size}"}
        etag = hashlib.sha1(data.start).hexdigest()  # noqa: S324
        self._start(code, headers | {"ETag": f'"{etag}"', "Content-Length": str(end - first)})
        if self.command == "HEAD":
            return
        stop = first + self.fault.after if self.fault and self.fault.kind == "drop" else end
        for place in range(first, stop, PIECE):
            self._send(data.span(place, min(place + PIECE, stop)))
        if stop != end:
            self.close_connection = True
            self.connection.shutdown(2)

    def _refuse(self, code: int, error: str, headers: Mapping[str, str] = {}) -> None:
        self._reply(code, json.dumps({"error": error}).encode(), {**headers, "X-Error-Code": error})

    def _reply(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self._start(code, {"Content-Length": str(len(body)), **headers})
        if self.command != "HEAD":
            self._send(body)

    def _start(self, code: int, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, data: bytes) -> None:
        self.wfile.write(data)
        with self.server.hub.lock:
            self.server.hub.sent += len(data)

    SPOILERS: ClassVar[dict[str, Callable[[_Handler, Fault], None]]] = {
        "status": _status,
        "silence": _silence,
        "close": _hang_up,
    }
    ROUTES: ClassVar[dict[re.Pattern[str], Callable[..., None]]] = {
        re.compile(r"/store/(?P<repo>[^/]+/[^/]+)/(?P<name>.+)"): _store,
        re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>.+))?"): _info,
        re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/safetensors-metadata/(?P<name>.+)"): _copies,
        re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)"): _resolve,
    }


def header(tensors: Mapping[str, tuple[str, list[int]]]) -> bytes:
    """Return the header of a safetensors file that holds these tensors, the length in front."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + _bytes(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    return framed(json.dumps(entries).encode())


def framed(text: bytes) -> bytes:
    """Put the length before the text of a header."""
    return len(text).to_bytes(8, "little") + text


def safetensors(tensors: Mapping[str, tuple[str, list[int]]]) -> Sparse:
    """Return a whole safetensors file whose data is zeros, however large."""
    start = header(tensors)
    return Sparse(start, len(start) + sum(_bytes(dtype, shape) for dtype, shape in tensors.values()))


def index(weight_map: Mapping[str, str], total: float = 0) -> bytes:
    """Return a model.safetensors.index.json."""
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}).encode()


def _bytes(dtype: str, shape: list[int]) -> int:
    return math.prod(shape) * DTYPE_BITS[dtype] // 8
