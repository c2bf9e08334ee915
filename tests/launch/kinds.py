"""No program, test harness, io or bench file names a kind of layer: they read the library's tables.  And every kind is where its
table cannot put it: its header's fields, its test, the documents.

usage: kinds.py TUTTI_VALIDATE.  The names are those that tutti-validate --layers lists, so a new layer is covered, too."""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

from harness import ROOT, run_tests  # noqa: E402

FOLDERS = ("apps", "reference", "tests/support", "src/files", "src/io", "src/comm", "src/optim")
# Exceptions: a layer's own file, named after it or a family ("norm"), and files that build models.
OWN = r"reference/(\w+)\.c|apps/tutti-bench/(\w+)\.c"
MODELS = r"apps/tutti-train/[a-z]+_model\.c|apps/common/network\.c|apps/tutti-bench/step\.c"
# Texts with another meaning there: a separator of dimensions, a model's option, a key of --log-json, a curve, a place of the
# tests' faults, lines that describe a model
OTHERWISE = {
    "apps/tutti-bench/run.c": r"x",
    "apps/tutti-train/options.c": r"embedding|dropout",
    "apps/tutti-train/log.c": r"loss",
    "apps/tutti-train/plot.c": r"loss",
    "apps/tutti-train/train.c": r"loss",
    "apps/tutti-train/bytes.c": r" *model .*|%s, linear .*|embedding",
    "apps/tutti-train/fashion.c": r" *model .*",
}

TOKEN = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | (?P<string>"(?:[^"\\\n]|\\.)*") | '(?:[^'\\\n]|\\.)+' | (?P<word>[A-Za-z_]\w*) | \n | .""", re.S | re.X
)
SEARCHES = re.compile(r"(strn?(case)?cmp|str(case)?str|fnmatch|memcmp)$")


class Names:
    """The names of the tables' kinds and of their tensors."""

    def __init__(self, program):
        listed = subprocess.run([program, "--layers"], check=True, capture_output=True, text=True).stdout
        lines = [line.split() for line in listed.splitlines()]
        self.kinds = {line[0] for line in lines}
        self.options = {kind: {line[2] for line in lines if line[:2] == [kind, "option"]} for kind in self.kinds}
        tensors = {line[2] for line in lines if line[1] in ("input", "output", "parameter")}
        self.tensors = tensors | {"d" + name for name in tensors}
        one = "|".join(sorted(self.kinds))
        self.calls = re.compile(rf"(tutti_({one})|TUTTI_({one.upper()}))_")
        self.word = re.compile(rf"(?<![A-Za-z0-9_])({one})(?![A-Za-z0-9_])")  # in a header's name, too

    def is_part(self, text):
        return len(text) >= 4 and any(text in kind for kind in self.kinds)

    def in_string(self, text, searched_for):
        """Why a string literal counts as the name of a kind or a tensor, or None.  searched_for: it is compared or searched for."""
        words = re.split(r"[ ,;|/]+", text.strip(" ,;|/"))
        if all(word in self.kinds | self.tensors for word in words):
            return "is the name of a tensor or a kind"
        if self.word.search(text):
            return "names a kind"
        if searched_for and self.is_part(text):
            return "is a part of a kind's name"
        return None


def named(names, text):
    """The places of a source, outside of comments, that name a kind or one of its tensors: (line, text, why)."""
    found, number, function = [], 1, ""
    for token in TOKEN.finditer(text):
        word, string = token["word"], token["string"]
        if word and names.calls.match(word):
            found.append((number, word, "is a layer's"))
        why = string and names.in_string(string[1:-1], SEARCHES.match(function))
        if why:
            found.append((number, string, why))
        if word or token[0] in ";{}":
            function = word if word and SEARCHES.match(word) else "" if token[0] in ";{}" else function
        number += token[0].count("\n")
    return found


def is_own(names, name):
    match = re.fullmatch(OWN, name)
    return bool(match) and any(stem and (stem in names.kinds or names.is_part(stem)) for stem in match.groups())


def sources(names, root):
    for folder in FOLDERS:
        for path, _, files in os.walk(os.path.join(root, folder)):
            for file in files:
                name = os.path.relpath(os.path.join(path, file), root)
                if not re.search(r"\.(c|h|cu|cuh)$", name) or re.fullmatch(MODELS, name):
                    continue
                if not is_own(names, name):
                    yield name


def all_named(names, root):
    found = []
    for name in sorted(sources(names, root)):
        with open(os.path.join(root, name)) as file:
            found += [
                f"{name}:{number}: {what} {why}"
                for number, what, why in named(names, file.read())
                if not re.fullmatch(OTHERWISE.get(name, "(?!)"), what.strip('"'))
            ]
    return found


NAMES = Names(sys.argv[1])


def test_nobody_knows_a_kind_by_name():
    assert len(list(sources(NAMES, ROOT))) > 50, "too few sources were found"
    found = all_named(NAMES, ROOT)
    assert not found, (
        "only the tables name kinds of layer and their tensors, but:\n"
        + "\n".join(found)
        + "\nread the table there; or, where the text means something else, call the tensor otherwise or add to OTHERWISE in "
        "tests/launch/kinds.py"
    )


def test_names_are_the_tables():
    assert {"softmax", "cross_entropy"} <= NAMES.kinds and {"x", "dx", "loss_sum", "dgamma"} <= NAMES.tensors
    with open(os.path.join(ROOT, "src", "ops", "ops.h")) as file:
        assert NAMES.kinds == set(re.findall(r"^ +X\((\w+)\)", file.read().split("TUTTI__KINDS")[1], re.M))


def read(root, *path):
    """A file's text; "" if there is none."""
    try:
        with open(os.path.join(root, *path)) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def fields_of(header, kind):
    """The fields of a kind's descriptor, but `size`."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    struct = re.search(rf"typedef struct tutti_{kind}_desc {{(.*?)}} tutti_{kind}_desc;", text, re.S)
    return set(re.findall(r"(\w+)\s*[,;]", struct[1] if struct else "")) - {"size"}


def gaps(names, root):
    """What a kind has not, although its table is there."""
    for kind in sorted(names.kinds):
        header = read(root, "include", "tutti", f"{kind}.h")
        for field in sorted(fields_of(header, kind) ^ names.options[kind]):
            yield f"{kind}: {field} is not both a field in include/tutti/{kind}.h and an option in its table"
        if f'"{kind}"' not in read(root, "tests", "layers", f"test_{kind}.c"):
            yield f"{kind}: tests/layers/test_{kind}.c does not test it"
        title = re.match(r"/\* (\w*)", header)  # the header's first word
        title = title[1] if title else kind
        if f"\n| {title}, `{kind}` |" not in read(root, "README.md"):
            yield f"{kind}: README.md's table of layers has no line for {title}, `{kind}`"
        if not re.search(rf"\b{title}\b", read(root, "docs", "numerics.md")):
            yield f"{kind}: docs/numerics.md does not name {title}"


def test_every_kind_is_complete():
    found = list(gaps(NAMES, ROOT))
    assert not found, "docs/add-a-layer.md has a checklist, but:\n" + "\n".join(found)


def test_a_gap_is_noticed():
    """In a temporary tree with one kind."""

    class One:
        kinds, options = {"double"}, {"double": {"cols", "log"}}

    whole = {
        "include/tutti/double.h": "/* Twice: y = 2 x. */\ntypedef struct tutti_double_desc {\n    size_t size;\n"
        "    int64_t cols; /* 1 to; */\n    int log;\n} tutti_double_desc;\n",
        "tests/layers/test_double.c": '.name = "double"',
        "README.md": "\n| Twice, `double` | y = 2 x |\n",
        "docs/numerics.md": "y of Twice",
    }
    faults = (
        ("include/tutti/double.h", "log;", "log, odd;", "odd is not both"),
        ("include/tutti/double.h", "int log;", "", "log is not both"),
        ("tests/layers/test_double.c", '"double"', '"single"', "tests/layers/test_double.c does not"),
        ("README.md", "| Twice", "| Thrice", "no line for Twice"),
        ("README.md", ", `double`", "", "no line for Twice, `double`"),
        ("docs/numerics.md", "Twice", "Thrice", "does not name Twice"),
    )
    for path, good, bad, message in (("README.md", "", "", None), *faults):
        with tempfile.TemporaryDirectory() as root:
            for name, text in whole.items():
                os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(root, name), "w") as file:
                    file.write(text.replace(good, bad) if name == path else text)
            found = list(gaps(One, root))
            assert [message in line for line in found] == [True] if message else not found, (path, message, found)


SEEDED = (
    'if (strcmp(name, "loss_sum") == 0) return;',
    'if (strstr(layer->name, "norm")) return;',
    "bool is = strncmp(name,\n\"cross\", 5) == 0;",
    'const char *const layers[] = {"linear"};',
    'add(t, "x", 2);',
    'add(t, /* the gradient */ "dgamma", 2);',
    '#include "tutti/softmax.h"',
    '#define IS(a) (strcmp(a, "residual") == 0)',
    'say("rmsnorm of %lld rows");',
    'option("layernorm|rmsnorm");',
    "tutti_embedding_forward(layer, ctx, &call);",
    "tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;",
    'a = \'"\'; b = "weight";',
    'a = "\\""; b = "weight";',
)
GOOD = (
    "/* of a softmax, x */",
    "// rmsnorm's gamma",
    'say("an x is wanted");',
    'say("%s: rows and labels differ");',
    'name = "max";',
    'name = "norm"; /* of the gradients */',
    'strcmp(name, "json");',
    '#include "tutti/layer.h"',
    "tutti_layer_forward(layer, ctx, &call);",
    "linear = softmax_of(x, y);",
    "x = 'x';",
)


def test_seeded_names_are_found():
    """In a temporary tree, in each folder that is searched."""
    with tempfile.TemporaryDirectory() as root:
        for number, text in enumerate(SEEDED + GOOD):
            folder = os.path.join(root, FOLDERS[number % len(FOLDERS)], "mine")
            os.makedirs(folder, exist_ok=True)
            name = os.path.join(folder, "file.c")
            with open(name, "w") as file:
                file.write(f"/* A file. */\n{text}\n")
            found = all_named(NAMES, root)
            os.remove(name)
            assert bool(found) == (number < len(SEEDED)), (text, found)
            assert all(os.path.relpath(name, root) in line for line in found), found


run_tests()
