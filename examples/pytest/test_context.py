from pytest_ctxconf import Conformance

# A program that uses the SDK, as it is.
test_program = Conformance("writer_ref", "--hold", "1s")
# The SDK through its adapter.
test_sdk = Conformance("adapter.sh", mode="run")
