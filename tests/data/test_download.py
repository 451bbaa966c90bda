"""Against a server on this machine."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from varscale.data import download as downloading

CONTENT = {"one.zip": b"1" * 5000, "two.zip": b"2" * 5000}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.rsplit("/", 1)[-1]
        self.server.asked.append(name)
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        harm = self.server.harm.pop(name, None)
        if harm == "cut":
            self.wfile.write(CONTENT[name][:1000])
        elif harm == "wrong":
            self.wfile.write(b"x" * 5000)
        else:
            self.wfile.write(CONTENT[name])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.harm = [], {}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/mirror"
    sums = {n: f"md5:{hashlib.md5(c).hexdigest()}" for n, c in CONTENT.items()}
    monkeypatch.setitem(downloading.FILES, "small", ("http://127.0.0.1:9/", sums))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_are_fetched_once(server, tmp_path):
    folder = downloading.download("small", tmp_path, server.url)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == CONTENT
    downloading.download("small", tmp_path, server.url)
    assert server.asked == ["one.zip", "two.zip"]


@pytest.mark.parametrize("harm", ["cut", "wrong"])
def test_a_broken_file_is_refused_and_the_next_run_goes_on(harm, server, tmp_path):
    server.harm = {"two.zip": harm}
    with pytest.raises(ValueError, match="could not be downloaded.*Run the command again"):
        downloading.download("small", tmp_path, server.url)
    assert not (tmp_path / "two.zip").exists()
    downloading.download("small", tmp_path, server.url)
    assert server.asked == ["one.zip", "two.zip", "two.zip"]
    assert (tmp_path / "two.zip").read_bytes() == CONTENT["two.zip"]


def test_nobody_there(server, tmp_path):
    with pytest.raises(ValueError, match="could not be downloaded from http://127.0.0.1:9/"):
        downloading.download("small", tmp_path)


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'omniglot'"):
        downloading.download("omniglott", tmp_path)
