"""Posterior files that were damaged, or made to deceive, are refused in one line."""

import json

import h5py
import numpy as np
import pytest
from test_posterior_file import STATISTICS, posterior_of, release_of, unsealed

from dpjax._base.seal import check_seal, seal
from dpjax.cli.app import main
from dpjax.errors import InputError
from dpjax.inference.posterior_file import load_posterior


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    statistic = STATISTICS["regression"]
    one = posterior_of(statistic, [release_of(statistic)])
    return one.save(tmp_path_factory.mktemp("good") / "good.nc")


@pytest.fixture
def changed(good, tmp_path):
    """A copy with a change and a digest that fits it: what somebody makes who means to."""

    def make(change, source=good):
        path = unsealed(source, tmp_path / "changed.nc", keep=True)
        with h5py.File(path, "r+") as file:
            change(file)
        seal(path)
        return path

    return make


def refused(path, capsys, says, tmp_path):
    (tmp_path / "new.csv").write_text("x,w w\n20,0\n")
    before = sorted(item.name for item in tmp_path.iterdir())
    assert main(["predict", str(path), str(tmp_path / "new.csv"), "--output", str(tmp_path / "out.csv")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err and err.isprintable() is False
    assert err.rstrip("\n").isprintable() and sorted(item.name for item in tmp_path.iterdir()) == before


def test_any_change_of_a_few_bytes_is_noticed(good, tmp_path):
    content, rng = good.read_bytes(), np.random.default_rng(0)
    path = tmp_path / "a.nc"
    for _ in range(300):
        new = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            new[place] ^= int(rng.integers(1, 256))
        path.write_bytes(new)
        with pytest.raises(InputError, match="digest"):
            load_posterior(path)


def test_a_file_that_is_cut_or_lost_its_digest_is_refused(good, tmp_path):
    content = good.read_bytes()
    for new in (content[:-1], content[:-78], content[:1000], content + b"\n", b"", b"nonsense"):
        (tmp_path / "a.nc").write_bytes(new)
        with pytest.raises(InputError, match=r"a\.nc: "):
            load_posterior(tmp_path / "a.nc")
    with pytest.raises(InputError, match="has lost its digest"):
        load_posterior(unsealed(good, tmp_path / "b.nc", keep=True))


def test_files_without_a_digest_are_read_and_say_so(good, tmp_path):
    one, other = load_posterior(good), load_posterior(unsealed(good, tmp_path / "a.nc"))
    np.testing.assert_array_equal(one.draws, other.draws)
    assert "has no digest" in other.table() and "no digest" not in one.table()


def test_a_seal_fits_its_file_only(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(2_500_000))
    with open(path, "rb") as file:
        assert not check_seal(file)
    seal(path)
    with open(path, "rb") as file:
        assert check_seal(file) and file.tell() == 0


def external(file):
    file["constant_data"].create_dataset("stolen", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def virtual(file):
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource("/tmp/other.nc", "x", (4,))
    file["constant_data"].create_virtual_dataset("stolen", layout)


def other_draws(make):
    def change(file):
        group = file["sample_stats"]
        values = make(group["scaled"][...])
        scales = [group["scaled"].dims[i][0] for i in range(3)]
        del group["scaled"]
        group["scaled"] = values
        for i, scale in enumerate(scales):
            group["scaled"].dims[i].attach_scale(scale)

    return change


def state(make):
    """A change of the text that holds all fields but arrays."""

    def change(file):
        group = file["constant_data"]
        content = json.loads(group["dpjax"][()])
        make(content)
        del group["dpjax"]
        group["dpjax"] = json.dumps(content)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (external, "keeps data in other files"),
        (virtual, "keeps data in other files"),
        (lambda f: f.__setitem__("out", h5py.ExternalLink("/etc/passwd", "/")), "a link to another place"),
        (lambda f: f["posterior"].__setitem__("out", h5py.SoftLink("/prior")), "a link to another place"),
        (lambda f: f.__setitem__("type", np.dtype("f8")), "a type of its own"),
        (lambda f: f.__setitem__("c", np.ones(3, complex)), "neither real numbers nor text (complex128)"),
        (lambda f: f.__setitem__("c", np.ones(3, [("a", "f8")])), "neither real numbers nor text"),
        (lambda f: f.__setitem__("o", np.array([f["posterior"].ref], h5py.ref_dtype)), "neither real numbers nor text"),
        (lambda f: f.create_dataset("big", (10**12,), "f8", chunks=(1000,)), "sizes that cannot lie in the file"),
        (lambda f: f.create_dataset("p", data=np.ones(9), compression="lzf"), "a filter that is not HDF5's own"),
        (other_draws(lambda x: x.astype(complex)), "(complex128)"),
        (other_draws(lambda x: (x * 9).astype(int)), "its draws must be finite real numbers"),
        (other_draws(lambda x: np.where(x == x[0, 0, 0], np.nan, x)), "its draws must be finite"),
        (other_draws(lambda x: x[:, :, :3]), "its draws must be of 9 parameters"),
        (other_draws(lambda x: x[:, :0]), "its draws must be of 9 parameters"),
        (other_draws(lambda x: np.full(x.shape, b"text")), "its draws must be"),
        (state(lambda s: s.update(records="many")), "its records must be a number"),
        (state(lambda s: s.update(epsilon=None)), "its epsilon must be a number"),
        (state(lambda s: s.update(method=["collapsed"])), "its method must be text"),
        (state(lambda s: s.update(notes={"$tuple": [7]})), "its notes must be sentences"),
        (state(lambda s: s.update(releases={"$tuple": ["none"]})), "its releases must be releases"),
        (state(lambda s: s["names"]["$tuple"].__setitem__(0, "\x1b[2Jtheta")), r"'\x1b[2Jtheta', which is no param"),
        (state(lambda s: s["names"]["$tuple"].__setitem__(1, "theta[0]")), "its names must be names"),
        (state(lambda s: s["statistic"]["$statistic"]["model"].update(target="a*b")), "column name 'a*b'"),
        (state(lambda s: s["statistic"]["$statistic"]["model"].update(moments=3)), "a.nc"),
        (state(lambda s: s.update(codes={"$array": ["object", [1]]})), "an array of object"),
        (state(lambda s: s.update(prior={"$class": ["os", "stat_result", {}]})), "not a class of results"),
        (state(lambda s: s.clear()), "KeyError"),
    ],
)  # fmt: skip
def test_what_is_no_posterior_is_refused_in_one_line(changed, capsys, tmp_path, change, says):
    refused(changed(change), capsys, says.replace("a.nc", "changed.nc"), tmp_path)


def test_control_characters_never_reach_the_terminal(changed, capsys, tmp_path):
    words = "\x1b]0;owned\x07 \x9b2J \u202e reversed \x00 \r over"
    path = changed(state(lambda s: s.update(notes={"$tuple": [words]}, doubts={"$tuple": [words]})))
    loaded = load_posterior(path)
    release = release_of(STATISTICS["labels"]).to_dict()
    release["model"]["labels"] = ["red", words, "blue"]
    (tmp_path / "release.json").write_text(json.dumps(release))
    assert main(["check", str(tmp_path / "release.json")]) == 2
    out, err = capsys.readouterr()
    for text in (out, err, loaded.table(), *loaded.warnings()):
        assert all(character.isprintable() or character == "\n" for character in text)
    for text in (err, loaded.table(), loaded.warnings()[0]):
        assert r"\x1b]0;owned\x07" in text
    error = InputError("a key '\x1b[2J'")
    assert str(error) == r"a key '\x1b[2J'"  # so for whoever calls from Python
    assert main(["check", "no\x1b[2J\x07.json"]) == 2
    assert r"no\x1b[2J" in capsys.readouterr().err


def test_what_is_no_file_is_refused(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(InputError, match="is not a regular file"):
            load_posterior(tmp_path / name)
