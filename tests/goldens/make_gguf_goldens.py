"""A GGUF with one tensor of every storage format that draftsmith reads, written and dequantised by the Python `gguf` package.

The blocks are random bytes with sane scales, so every bit of a block matters. Run with a Python that has gguf, numpy and safetensors:
    python3 tests/goldens/make_gguf_goldens.py   -> tests/goldens/gguf/formats.gguf, formats.safetensors (fp32 values, q8_0 packing)
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "gguf"
ROWS, COLUMNS = 3, 512
# format -> byte offsets of the half-precision scales inside a block
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}


def random_blocks(rng, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS, COLUMNS // elements, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = rng.normal(0, 0.05, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def main():
    OUT.mkdir(exist_ok=True)
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(OUT / "formats.gguf", "llama")
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -3)
    writer.add_uint16("test.u16", 65000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 2**63 + 5)
    writer.add_int64("test.i64", -(2**60))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.text", "h\u00e9 \u65e5")
    writer.add_array("test.texts", ["a", "", "\u00df"])
    writer.add_array("test.integers", [3, -1, 7])
    writer.add_array("test.numbers", [0.25, -8.0])
    writer.add_array("test.booleans", [True, False, True])
    values = {}
    plain = rng.normal(0, 1, (ROWS, 7)).astype(np.float32)
    writer.add_tensor("f32", plain)
    values["f32"] = plain
    writer.add_tensor("f16", plain.astype(np.float16))
    values["f16"] = plain.astype(np.float16).astype(np.float32)
    bits = gguf.quants.quantize(plain, T.BF16)
    writer.add_tensor("bf16", bits, raw_dtype=T.BF16)
    values["bf16"] = gguf.quants.dequantize(bits, T.BF16).reshape(plain.shape)
    for kind in SCALES:
        blocks = random_blocks(rng, kind)
        writer.add_tensor(kind.name.lower(), blocks, raw_dtype=kind)
        values[kind.name.lower()] = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wide = rng.normal(0, 3, (ROWS, 64)).astype(np.float32)
    wide[1, :32] = 0
    values["wide"] = wide
    values["wide_packed_q8_0"] = gguf.quants.quantize(wide, T.Q8_0)
    save_file({name: np.ascontiguousarray(value) for name, value in values.items()}, OUT / "formats.safetensors")


if __name__ == "__main__":
    main()
