"""The layers, a module each, found by being here.  In it are

    a class with run(recorder)  the reference: inputs, results and bounds of one case
    small()                     the layer's cases in tests/data/cases.h5
    simulate(case, given)       the layer in the types that the library computes and stores in: what a right
                                implementation may return
    KINDS                       names of kinds of layer that it is about, if not its own
    REDRAWN                     cases that use other random numbers than the first ones.  Those left the largest
                                element of a tensor just above a power of two, where 16 ulp are least, or a
                                gradient that all but cancels: the bound would hide what it should show."""

import importlib
import pkgutil

MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
SIMULATED = {
    kind: module.simulate
    for module in MODULES
    for kind in getattr(module, "KINDS", (module.__name__.rsplit(".", 1)[1],))
}
