"""The catalogue and its downloads: published sizes, resumed and verified, never incomplete."""

import hashlib
import os
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from bench.synthetic_ogb import make_ogb

from dynagat.data import catalog, download
from dynagat.data.catalog import CATALOG, find_entry, get, load
from dynagat.data.download import DownloadError, Remote, unzip
from dynagat.data.molecules import GRAPH
from dynagat.data.planetoid import PARTS
from dynagat.data.store import open_graph, stored_names


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "PAUSE", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def no_data(monkeypatch):
    monkeypatch.delenv("DYNAGAT_DATA", raising=False)


class Server:
    """Serves bytes by name and records requests; `cut` ends each response after so many bytes."""

    def __init__(self):
        self.files, self.requests, self.cut, self.tag, self.status = {}, [], None, '"one"', None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.respond(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.http.server_port}/{name}"

    def respond(self, request):
        whole = self.files.get(request.path[1:])
        wanted = request.headers.get("Range")
        self.requests.append(wanted)
        if whole is None or self.status:
            request.send_error(self.status or 404)
            return
        start = 0
        if wanted and request.headers.get("If-Range") == self.tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(whole) > 0:
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if self.tag:
            request.send_header("ETag", self.tag)
        request.send_header("Content-Length", str(len(whole) - start))
        request.send_header("Connection", "close")
        request.end_headers()
        rest = whole[start:]
        request.wfile.write(rest if self.cut is None else rest[: self.cut])
        request.close_connection = True


@pytest.fixture
def server():
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def sum_of(data):
    return hashlib.sha256(data).hexdigest()


CONTENT = bytes(range(256)) * 40
SOURCE = os.environ.get("DYNAGAT_DATA", "")  # before a test unsets it


def test_a_file_is_downloaded_and_verified(server, tmp_path):
    server.files["a.bin"] = CONTENT
    reports = []
    remote = Remote(server.url("a.bin"), sum_of(CONTENT))
    path = download.download(remote, tmp_path / "to", lambda *report: reports.append(report))
    assert path.read_bytes() == CONTENT
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    assert [each.name for each in path.parent.iterdir()] == ["a.bin"]


def test_an_interrupted_download_is_resumed(server, tmp_path):
    server.files["a.bin"], server.cut = CONTENT, 3000
    path = download.download(Remote(server.url("a.bin")), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=3000-", "bytes=6000-", "bytes=9000-"]


def test_another_call_resumes_the_last_one(server, tmp_path):
    server.files["a.bin"], server.cut = CONTENT, 3000
    part = tmp_path / "a.bin.part"
    part.write_bytes(CONTENT[:5000])
    Path(f"{part}.tag").write_text(server.tag)
    path = download.download(Remote(server.url("a.bin")), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests[0] == "bytes=5000-"


def test_a_file_that_changed_meanwhile_is_downloaded_again(server, tmp_path):
    server.files["a.bin"] = CONTENT
    part = tmp_path / "a.bin.part"
    part.write_bytes(b"an older version")
    Path(f"{part}.tag").write_text('"old"')
    assert download.download(Remote(server.url("a.bin")), tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_discarded(server, tmp_path):
    server.files["a.bin"] = CONTENT
    part = tmp_path / "a.bin.part"
    part.write_bytes(CONTENT * 2)
    Path(f"{part}.tag").write_text(server.tag)
    assert download.download(Remote(server.url("a.bin")), tmp_path).read_bytes() == CONTENT


def test_without_a_tag_the_download_starts_again(server, tmp_path):
    server.files["a.bin"], server.tag = CONTENT, None
    (tmp_path / "a.bin.part").write_bytes(b"an older version")
    assert download.download(Remote(server.url("a.bin")), tmp_path).read_bytes() == CONTENT
    assert server.requests == [None]


def test_a_file_with_a_wrong_checksum_is_deleted(server, tmp_path):
    server.files["a.bin"] = CONTENT
    with pytest.raises(DownloadError, match=r"must have the sha256 0000, but has .*; it was del"):
        download.download(Remote(server.url("a.bin"), "0000"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_known_checksum_later_downloads_must_equal_the_first(server, tmp_path):
    server.files["a.bin"] = CONTENT
    download.download(Remote(server.url("a.bin")), tmp_path)
    download.download(Remote(server.url("a.bin")), tmp_path)
    server.files["a.bin"] = CONTENT[:-1]
    with pytest.raises(
        DownloadError, match=r"of the first download, recorded in .*DOWNLOADED\.json"
    ):
        download.download(Remote(server.url("a.bin")), tmp_path)


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (403, 1), (503, download.ATTEMPTS)])
def test_an_http_error_is_reported(server, tmp_path, status, tries):
    server.files["a.bin"], server.status = CONTENT, status
    with pytest.raises(DownloadError, match=rf"a\.bin can't be downloaded: {status} "):
        download.download(Remote(server.url("a.bin")), tmp_path)
    assert len(server.requests) == tries


def test_without_a_network_the_part_is_kept(server, tmp_path):
    server.files["a.bin"], server.cut = CONTENT, 0
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:50])
    (tmp_path / "a.bin.part.tag").write_text(server.tag)
    with pytest.raises(DownloadError, match="50 bytes are kept; run the command again to resume"):
        download.download(Remote(server.url("a.bin")), tmp_path)
    with pytest.raises(DownloadError, match=r"can't be downloaded: .*refused; try again"):
        download.download(Remote("http://127.0.0.1:9/b.bin"), tmp_path)


def zip_of(path, **files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_zip_is_unpacked_without_its_outer_folder(tmp_path):
    unzip(zip_of(tmp_path / "a.zip", **{"arxiv/raw/a": "1", "arxiv/b": "2"}), tmp_path / "out")
    assert (tmp_path / "out" / "raw" / "a").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "out"]


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/out.txt", "a/../../out.txt", "..\\out.txt"])
def test_a_zip_cannot_write_outside_its_folder(tmp_path, name):
    with pytest.raises(DownloadError, match="holds a file that would leave its folder"):
        unzip(zip_of(tmp_path / "a.zip", **{"ok": "1", name: "2"}), tmp_path / "in" / "out")
    assert not (tmp_path / "in" / "out").exists()
    assert not (tmp_path / "in" / "out.txt").exists()


def test_a_zip_that_was_altered_leaves_nothing(tmp_path):
    path = zip_of(tmp_path / "a.zip", **{"a": "some text " * 50})
    whole = bytearray(path.read_bytes())
    whole[40] ^= 255
    path.write_bytes(whole)
    with pytest.raises((DownloadError, ValueError), match="was cut short or altered"):
        unzip(path, tmp_path / "out")
    path.write_bytes(whole[:100])
    with pytest.raises(DownloadError, match="was cut short or altered"):
        unzip(path, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["a.zip"]


def serve_synthetic(server, monkeypatch, tmp_path, name="ogbl-ddi", nodes=20):
    """Serve a synthetic dataset in the form of its official zip."""
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda _: None
    )  # as if the ogb package were missing
    monkeypatch.setattr("dynagat.data.ogb.check_counts", lambda *_: None)  # it is smaller
    folder = make_ogb(name, tmp_path / "synthetic" / "ddi", nodes=nodes)
    path = tmp_path / "ddi.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(folder.rglob("*")):
            archive.write(each, each.relative_to(folder.parent))
    server.files["ddi.zip"] = path.read_bytes()
    entry = replace(CATALOG[name], remotes=(Remote(server.url("ddi.zip")),))
    monkeypatch.setitem(CATALOG, name, entry)


def test_a_dataset_is_downloaded_once_and_stored(server, monkeypatch, tmp_path, cache, no_data):
    serve_synthetic(server, monkeypatch, tmp_path)
    server.cut = 10_000
    assert get("ogbl-ddi").num_nodes == 20
    assert stored_names() == ["ogbl-ddi"]
    requests = len(server.requests)
    assert requests > 1
    assert get("ogbl-ddi").num_nodes == 20
    assert load("ogbl-ddi").num_nodes == 20
    assert len(server.requests) == requests
    assert get("ogbl-ddi", replace=True).num_nodes == 20
    assert len(server.requests) > requests
    assert not list(cache.rglob("*.zip"))


def test_a_truncated_zip_leaves_no_folder(server, monkeypatch, tmp_path, cache, no_data):
    serve_synthetic(server, monkeypatch, tmp_path)
    server.files["ddi.zip"] = server.files["ddi.zip"][:-500]
    with pytest.raises(DownloadError, match="was cut short or altered"):
        get("ogbl-ddi")
    server.files["ddi.zip"] = b"<html>moved</html>"
    with pytest.raises(DownloadError, match="was cut short or altered: File is not a zip file"):
        get("ogbl-ddi")
    assert not list(cache.rglob("*.json"))  # no checksum is recorded for the next download
    assert not (cache / "raw" / "ogbl-ddi").exists()
    assert stored_names() == []


@pytest.mark.data
def test_a_dataset_of_several_files_needs_all_of_them(server, monkeypatch, no_data, tmp_path):
    source = Path(SOURCE) / "cora"
    remotes = tuple(
        Remote(server.url(remote.file_name), remote.sha256) for remote in CATALOG["cora"].remotes
    )
    monkeypatch.setitem(CATALOG, "cora", replace(CATALOG["cora"], remotes=remotes))
    for path in source.glob("ind.cora.*"):
        server.files[path.name] = path.read_bytes()
    last = server.files.pop("ind.cora.test.index")
    with pytest.raises(DownloadError, match=r"ind\.cora\.test\.index can't be downloaded: 404"):
        get("cora")
    with pytest.raises(ValueError, match="cora is not here"):
        load("cora")
    server.files["ind.cora.test.index"] = last
    assert get("cora").num_edges == 10_556


def test_the_error_for_a_missing_dataset_says_how_to_get_it(no_data):
    with pytest.raises(ValueError, match="ogbn-mag is not here; `dynagat data get ogbn-mag`"):
        load("ogbn-mag")
    with pytest.raises(
        ValueError, match="no graph 'nope' in the store or the catalogue; known: pub"
    ):
        load("nope")
    with pytest.raises(ValueError, match="the catalogue has no 'nope'; it has pubmed"):
        get("nope")


def test_files_that_are_not_the_published_ones_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("DYNAGAT_DATA", str(tmp_path))
    make_ogb("ogbl-ddi", tmp_path / "ogbl-ddi", nodes=20)
    with pytest.raises(
        ValueError, match="must have 4,267 nodes and 2,135,822 edges, but has 20 no"
    ):
        load("ogbl-ddi")
    assert stored_names() == []


def test_addresses_come_from_the_ogb_package_if_it_is_installed(monkeypatch, tmp_path):
    package = tmp_path / "ogb" / "nodeproppred"
    package.mkdir(parents=True)
    (package / "master.csv").write_text(",ogbn-mag,ogbn-arxiv\nurl,http://m/,http://newer/a.zip\n")
    (tmp_path / "ogb" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    entry = find_entry("ogbn-arxiv")
    assert catalog._current(entry, entry.remotes[0]).url == "http://newer/a.zip"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert catalog._current(entry, entry.remotes[0]) == entry.remotes[0]


def test_a_computed_dataset_needs_no_files(monkeypatch, tmp_path):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    first, again = get("minesweeper"), get("minesweeper", replace=True)
    assert first.num_nodes == again.num_nodes == 10_000
    assert load("minesweeper").folder == again.folder


def test_entries_are_complete():
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert min(entry.nodes, entry.edges, *entry.split) > 0
        assert bool(entry.remotes) == bool(entry.signs)
        assert all(remote.url.startswith("http") for remote in entry.remotes)
        is_node_set = entry.classes > 0
        assert sum(entry.split) <= entry.nodes or not is_node_set


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in CATALOG if name not in (
    "ogbn-mag", "ogbn-products", "ogbn-proteins", "ogbl-collab", "ogbl-citation2")])  # fmt: skip
def test_the_available_datasets_have_the_sizes_in_the_catalogue(name):
    entry, data = CATALOG[name], load(name)
    num_nodes = sum(each.count for kind, each in data.nodes.items() if kind != GRAPH)
    assert (num_nodes, data.num_edges) == (entry.nodes, entry.edges)
    parts = ["train", "valid", "test"]
    if data.task["kind"] == "links":
        parts = [f"{part}/edge" for part in parts]
    assert tuple(len(data.split[part]) for part in parts) == entry.split
    targets = data.task.get("classes", data.task.get("targets", ()))
    assert len(targets) == entry.classes
    if "x" in data.nodes[data.node_type].arrays:
        assert data.x.shape[1] == entry.features
    assert open_graph(name, verify=True).num_nodes == data.num_nodes


@pytest.mark.data
@pytest.mark.parametrize("name", ["pubmed", "cora", "citeseer"])
def test_checksums_are_those_of_the_original_files(name):
    for part, remote in zip(PARTS, CATALOG[name].remotes, strict=True):
        path = Path(os.environ["DYNAGAT_DATA"]) / name / f"ind.{name}.{part}"
        assert path.name == remote.file_name
        assert sum_of(path.read_bytes()) == remote.sha256


@pytest.mark.data
def test_amazon_without_a_split_file_gets_a_random_split(monkeypatch, tmp_path):
    source = Path(os.environ["DYNAGAT_DATA"]) / "amazon" / "amazon_electronics_photo.npz"
    (tmp_path / "amazon").mkdir()
    (tmp_path / "amazon" / source.name).write_bytes(source.read_bytes())
    assert load("amazon-photo").about["split"] == "amazon-photo_split.npz"
    monkeypatch.setenv("DYNAGAT_DATA", str(tmp_path))
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "other"))
    data = load("amazon-photo")
    assert data.about["split"] == "60/20/20, drawn with seed 0"
    parts = [data.split[part] for part in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [4_590, 1_530, 1_530]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(7_650))
