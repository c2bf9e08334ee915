"""The layers: each module here is one, with

    a class with run(recorder)  the reference: inputs, results and bounds of one case
    small()                     the layer's cases in tests/data/cases.h5
    simulate(case, given)       the layer in the types that the library computes and stores in: what a right
                                implementation may return
    KINDS                       the kinds of layer that it covers, if not only that of its own name
    REDRAWN                     cases that use other random numbers than the first ones, with which the largest
                                element of a tensor was just above a power of two, where 16 ulp are least, or a
                                gradient almost cancelled: the bound would hide an error."""

import importlib
import pkgutil

MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
SIMULATED = {
    kind: module.simulate
    for module in MODULES
    for kind in getattr(module, "KINDS", (module.__name__.rsplit(".", 1)[1],))
}
