#!/bin/bash -eu
# Builds the fuzz targets with the compiler and flags of the environment: CC, CXX, CFLAGS,
# CXXFLAGS, LIB_FUZZING_ENGINE, SRC, OUT, WORK. Run by OSS-Fuzz and by scripts/check-oss-fuzz.
#
# No target needs a library, so a library that was built for another C++ library cannot be linked by
# mistake. payload_fuzzer and process_header_fuzzer are built without the parts that decode with
# protobuf.
source="$SRC/ctxconf"
cmake -S "$source" -B "$WORK/build" -G Ninja -DCTXCONF_FUZZ_ONLY=ON \
  -DCTXCONF_FUZZ_ENGINE="$LIB_FUZZING_ENGINE"
cmake --build "$WORK/build" --target fuzz_targets
python3 "$source/fuzz/make_seeds.py" "$source/golden" "$WORK/seeds"
for target in record_fuzzer thread_context_fuzzer process_header_fuzzer maps_fuzzer payload_fuzzer; do
  cp "$WORK/build/bin/$target" "$source/fuzz/$target.dict" "$source/fuzz/$target.options" "$OUT/"
  cp "$source/fuzz/regressions/$target"/* "$WORK/seeds/$target/"
  (cd "$WORK/seeds/$target" && python3 -m zipfile -c "$OUT/${target}_seed_corpus.zip" ./*)
done
