"""BLAKE3 in plain Python, from its specification, so that vectors are not made by the code they check.

Slow on purpose: no dependency, no cleverness. Only what keyclaim uses: the hash and its derive-key mode.
"""

import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
DERIVE_KEY_CONTEXT, DERIVE_KEY_MATERIAL = 32, 64
CHUNK_LEN, BLOCK_LEN, MASK = 1024, 64, 0xFFFFFFFF


def rotated(word, by):
    return ((word >> by) | (word << (32 - by))) & MASK


def compress(chaining, block, counter, block_len, flags):
    words = list(struct.unpack("<16I", block.ljust(BLOCK_LEN, b"\0")))
    v = [*chaining, *IV[:4], counter & MASK, counter >> 32, block_len, flags]

    def quarter(a, b, c, d, x, y):
        v[a] = (v[a] + v[b] + x) & MASK
        v[d] = rotated(v[d] ^ v[a], 16)
        v[c] = (v[c] + v[d]) & MASK
        v[b] = rotated(v[b] ^ v[c], 12)
        v[a] = (v[a] + v[b] + y) & MASK
        v[d] = rotated(v[d] ^ v[a], 8)
        v[c] = (v[c] + v[d]) & MASK
        v[b] = rotated(v[b] ^ v[c], 7)

    for _ in range(7):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i, words[2 * i], words[2 * i + 1])
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[8 + 2 * i], words[9 + 2 * i])
        words = [words[i] for i in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def chunk(key, data, counter, flags, root):
    blocks = [data[i : i + BLOCK_LEN] for i in range(0, len(data), BLOCK_LEN)] or [b""]
    chaining = key
    for index, block in enumerate(blocks):
        start = CHUNK_START if index == 0 else 0
        end = (CHUNK_END | root) if index == len(blocks) - 1 else 0
        chaining = compress(chaining, block, counter, len(block), flags | start | end)
    return chaining


def tree(key, data, counter, flags, root):
    if len(data) <= CHUNK_LEN:
        return chunk(key, data, counter, flags, root)
    # The left side is the largest power of two of chunks that leaves something for the right side.
    chunks = 1
    while chunks * 2 * CHUNK_LEN < len(data):
        chunks *= 2
    middle = chunks * CHUNK_LEN
    left = tree(key, data[:middle], counter, flags, 0)
    right = tree(key, data[middle:], counter + chunks, flags, 0)
    return compress(key, struct.pack("<16I", *left, *right), 0, BLOCK_LEN, flags | PARENT | root)


def digest(data):
    """The 32-byte hash."""
    return struct.pack("<8I", *tree(list(IV), data, 0, 0, ROOT))


def derived(context, data):
    """The 32-byte hash in derive-key mode."""
    key = tree(list(IV), context.encode(), 0, DERIVE_KEY_CONTEXT, ROOT)
    return struct.pack("<8I", *tree(key, data, 0, DERIVE_KEY_MATERIAL, ROOT))


EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
assert digest(b"").hex() == EMPTY, "this BLAKE3 is broken: the hash of nothing is a published constant"
