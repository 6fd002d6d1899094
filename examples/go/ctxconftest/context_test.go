package ctxconftest_test

import (
	"testing"

	"example.com/ctxconftest"
)

// A program that uses the SDK, as it is.
func TestProgram(t *testing.T) {
	ctxconftest.Judge(t, ctxconftest.Program{Command: []string{"writer_ref", "--hold", "1s"}})
}

// The SDK through its adapter.
func TestSDK(t *testing.T) {
	ctxconftest.Judge(t, ctxconftest.Program{Mode: "run", Command: []string{"adapter.sh"}})
}
