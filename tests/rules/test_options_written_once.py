"""Options are written once: keywords, keys of a config and options of a command are those of the structs."""

import dataclasses
import inspect

import msgspec
import pytest
import typer

import dpjax
from dpjax._base.options import options_of
from dpjax._base.reading import READING, Reading, ReadingOptions
from dpjax.calibration.options import DesignOptions, StudyOptions
from dpjax.calibration.study import calibrate
from dpjax.cli.app import app
from dpjax.families import FAMILIES
from dpjax.inference.methods import METHODS
from dpjax.releases.options import ReleaseFields, ReleaseOptions
from dpjax.runner.sections import CalibrationSection, Data, ReleaseSection
from dpjax.statistics.kinds import block_fields
from dpjax.statistics.options import StatisticOptions

NONE = inspect.Parameter.empty
RELEASE, STUDY, DESIGN = (options_of(struct) for struct in (ReleaseOptions, StudyOptions, DesignOptions))
#: Keywords, options and keys that are no fields: the table, what only a program or a command has, names by other words.
OF_A_RUN = {"method", "seed", "devices", "progress"}
OF_A_COMMAND = {"seed", "json", "figure", "force", "devices", "platform", "quiet", "method"}


def keywords(function):
    """Keywords of a public function and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD}


def command(name):
    """Options of a command by name; the help of each, its flags and its default."""
    found = typer.main.get_command(app).commands[name]
    return {one.name: one for one in found.params if one.param_type_name == "option"}


def fields(struct):
    return {field.name for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize("function", [dpjax.release, dpjax.plan_release])
def test_keywords_of_a_release(function):
    found = keywords(function)
    del found["table"]
    assert found == {name: one.default for name, one in RELEASE.items() if name != "options"}


def test_keywords_of_a_study():
    found = {name: default for name, default in keywords(calibrate).items() if name not in OF_A_RUN}
    assert found == {name: one.default for name, one in STUDY.items()}


@pytest.mark.parametrize(
    "name, options, own, without",
    [
        ("release", RELEASE, {"output", "private_bounds", "bounds_share", "quantiles", "force"}, {"report"}),
        ("calibrate", STUDY, OF_A_COMMAND, {"model"}),
        (
            "precompile", DESIGN, {"method", "trials", "chains", "draws", "thin", "stream", "devices", "platform"},
            {"model", "truth", "clip"},
        ),
        (
            "predict", options_of(ReadingOptions), {"level", "seed", "output", "json", "force"},
            {"missing", "missing_codes", "impute"},
        ),
    ],
)  # fmt: skip
def test_options_of_a_command(name, options, own, without):
    found = command(name)
    assert found.keys() == (options.keys() - without) | own
    for option, one in options.items():
        if option in without:
            continue
        shown = found[option]
        assert shown.help == one.help and one.help.endswith(".")
        assert shown.required == (one.default is NONE)
        if one.metavar is not None:
            assert shown.metavar == one.metavar
        if shown.default is not None and not shown.required:
            assert shown.default == one.default
    assert "--no-squares" not in found or found["squares"].secondary_opts == ["--no-squares"]


def test_keys_of_a_config():
    assert fields(ReleaseSection) == fields(ReleaseFields) | {"file"}
    assert fields(ReleaseOptions) == fields(ReleaseFields) | {"reading", "accept", "report"}
    assert fields(Data) == set(READING) | {"csv", "builtin", "data_is_public", "accept"}
    assert fields(CalibrationSection) == fields(StudyOptions) | {"methods", "method"}
    for section, options, changed in (
        (ReleaseSection, options_of(ReleaseFields), {}),
        (Data, RELEASE, {}),
        # all methods of a config see one study, whose numbers have no default; the hashes of older folders hold these
        (CalibrationSection, STUDY, {"records": NONE, "epsilon": NONE, "model": "linear-regression", "options": {}}),
    ):
        found = options_of(section)
        for name in found.keys() & options.keys():
            assert found[name].default == changed.get(name, options[name].default), name
            assert found[name].help == options[name].help or name == "accept", name


def test_fields_of_a_release_file():
    """Where they have the name of an option they are of its type."""
    known = options_of(StatisticOptions)
    for kind, needed in (("linear-regression", {"features", "target", "intercept"}), ("multinomial", {"categories"})):
        for name, type_, *default in block_fields(kind):
            if name in known and name not in needed:
                assert (type_, default) == (known[name].type, [known[name].default]), name


def test_a_table_is_read_as_is_said():
    assert [field.name for field in dataclasses.fields(Reading)] == list(READING)


def test_families_have_no_option_that_is_one_of_all_models():
    for family in FAMILIES.values():
        own = {field.name for field in dataclasses.fields(family)}
        assert not own & (RELEASE.keys() | DESIGN.keys() | {"table", "kind", "scaling"}), family


@pytest.mark.parametrize("name", ["fit", "calibrate", "precompile"])
def test_every_method_is_named_in_the_help(name):
    words = command(name)["method"].help.replace(",", " ").replace(";", " ").replace(".", " ").split()
    assert not set(METHODS) - set(words)


def test_every_option_says_what_it_is():
    for struct in (ReleaseOptions, StudyOptions):
        silent = {name for name, one in options_of(struct).items() if not one.help}
        assert silent <= {"model"}
