"""Random data that is the same on every machine and with every NumPy: named streams of PCG64's raw numbers,
turned into values by exact arithmetic alone."""

import zlib

import numpy as np

# mean of twelve 16-bit numbers and a fraction
_CENTRE = 12 * 32767.5 + 0.5
_CHUNK = 1 << 20


class Stream:
    def __init__(self, *names):
        self._raw = np.random.PCG64(zlib.crc32("/".join(names).encode())).random_raw

    def normal(self, *shape):
        """A bell of mean 0 and deviation 1 (twelve uniform numbers added up: within ±6), with all digits of
        f64."""
        count = int(np.prod(shape))
        values = np.empty(count)
        for at in range(0, count, _CHUNK):
            raw = self._raw((min(_CHUNK, count - at), 4))
            coarse = raw[:, :3].copy().astype("<u8").view("<u2").astype(np.int64).sum(axis=1)
            values[at : at + _CHUNK] = (coarse + (raw[:, 3] >> np.uint64(11)) * 2.0**-53 - _CENTRE) / 65536
        return values.reshape(shape)

    def uniform(self, *shape):
        """[0, 1)"""
        return (self._raw(int(np.prod(shape))) >> np.uint64(11)).reshape(shape) * 2.0**-53

    def below(self, limit, *shape):
        """Integers from 0 to limit - 1."""
        return (self.uniform(*shape) * limit).astype(np.int64)
