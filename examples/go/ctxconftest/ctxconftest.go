// Package ctxconftest judges a program with ctxconf: each requirement is a subtest.
//
// A requirement that is broken fails, and one that could not be observed or does not apply is skipped with the
// reason, as is a known failure (--expect). The test itself fails if the program crashed, if ctxconf gives no result,
// or if it ended with an exit code that no requirement explains.
//
// The program ctxconf is $CTXCONF_PROGRAM, or else the one in PATH.
package ctxconftest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
)

const textLimit = 2000

// Program is what to judge.
type Program struct {
	Command []string
	Mode    string        // wrap (if empty), run or reader
	Options []string      // further options of ctxconf
	Out     string        // folder of the reports; if empty, they are removed after the test
	Timeout time.Duration // of ctxconf; ten minutes if zero, and less if the deadline of the test is sooner
}

type result struct {
	Results []requirement `json:"results"`
	Exit    struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"exit"`
	Problems []struct {
		Outcome string `json:"outcome"`
		Text    string `json:"text"`
	} `json:"problems"`
	ExpectationProblems []struct {
		Text string `json:"text"`
		Mend string `json:"mend"`
	} `json:"expectation_problems"`
}

type requirement struct {
	ID              string    `json:"id"`
	OTEP            int       `json:"otep"`
	Anchor          string    `json:"anchor"`
	Strength        string    `json:"strength"`
	Text            string    `json:"text"`
	Why             string    `json:"why"`
	Outcome         string    `json:"outcome"`
	Expected        string    `json:"expected"`
	ExpectationNote string    `json:"expectation_note"`
	Findings        []finding `json:"findings"` // worst first
}

type finding struct {
	Saw      string   `json:"saw"`
	NaReason string   `json:"na_reason"`
	Remedy   string   `json:"remedy"`
	Evidence []string `json:"evidence"`
}

// Judge runs ctxconf once and makes its verdicts subtests of t.
func Judge(t *testing.T, program Program) {
	t.Helper()
	judged := run(t, program)
	strict := false
	for _, option := range program.Options {
		strict = strict || option == "--strict"
	}
	broken := false
	for _, one := range judged.Results {
		one := one
		broken = broken || one.isBroken(strict)
		t.Run(one.ID, func(t *testing.T) { one.report(t, strict) })
	}
	code := judged.Exit.Code
	if len(judged.Problems) == 0 && (code == 0 || (code == 1 && broken)) {
		return
	}
	t.Errorf("ctxconf ended with exit code %d: %s", code, printable(judged.Exit.Reason))
	for _, problem := range judged.Problems {
		t.Errorf("%s: %s", problem.Outcome, printable(problem.Text))
	}
	for _, problem := range judged.ExpectationProblems {
		t.Errorf("%s\nto fix it: %s", printable(problem.Text), printable(problem.Mend))
	}
}

func (r requirement) isBroken(strict bool) bool {
	switch r.Outcome {
	case "pass", "info", "na", "unobservable":
		return false
	case "warn":
		return strict && r.Expected != "as-expected"
	}
	return r.Expected != "as-expected"
}

func (r requirement) report(t *testing.T, strict bool) {
	worst := finding{}
	if len(r.Findings) > 0 {
		worst = r.Findings[0]
	}
	saw := printable(worst.Saw)
	text := fmt.Sprintf("%s of OTEP %d #%s\nrule  %s\nsaw   %s\n", r.Strength, r.OTEP, r.Anchor, r.Text, saw)
	for i, line := range worst.Evidence {
		if i == 20 {
			break
		}
		text += "      " + printable(line) + "\n"
	}
	text += "why   " + r.Why
	switch {
	case r.Outcome == "pass" || r.Outcome == "info":
	case r.Outcome == "na":
		t.Skipf("n/a (%s): %s", worst.NaReason, saw)
	case r.Outcome == "unobservable":
		if worst.Remedy != "" {
			saw += "; to see it: " + printable(worst.Remedy)
		}
		t.Skipf("unobservable: %s", saw)
	case r.Expected == "as-expected":
		t.Skipf("%s as expected, %s: %s", r.Outcome, printable(r.ExpectationNote), saw)
	case r.isBroken(strict):
		t.Errorf("%s: %s", r.Outcome, text)
	default:
		t.Logf("%s: %s", r.Outcome, text)
	}
}

func run(t *testing.T, program Program) result {
	t.Helper()
	ctxconf := os.Getenv("CTXCONF_PROGRAM")
	if ctxconf == "" {
		ctxconf = "ctxconf"
	}
	ctxconf, err := exec.LookPath(ctxconf)
	if err != nil {
		t.Fatalf("%v: install a release of ctxconf and add its bin folder to PATH, or set CTXCONF_PROGRAM", err)
	}
	out := program.Out
	if out == "" {
		out = t.TempDir()
	} else if err := os.MkdirAll(out, 0o777); err != nil {
		t.Fatal(err)
	}
	mode := program.Mode
	if mode == "" {
		mode = "wrap"
	}
	timeout := program.Timeout
	if timeout == 0 {
		timeout = 10 * time.Minute
	}
	// After the deadline, the test program would end without ending ctxconf.
	if deadline, ok := t.Deadline(); ok && time.Until(deadline)-time.Minute/2 < timeout {
		timeout = time.Until(deadline) - time.Minute/2
	}
	args := append([]string{mode, "--out", out}, program.Options...)
	command := exec.Command(ctxconf, append(append(args, "--"), program.Command...)...)
	said, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	command.Stdout, command.Stderr = pipe, pipe
	err = command.Start()
	pipe.Close()
	if err != nil {
		t.Fatal(err)
	}
	tail := make(chan string, 1)
	go func() { tail <- lastOf(said) }()
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-ended:
	case <-time.After(timeout):
		command.Process.Signal(syscall.SIGTERM) // it ends the program too
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			command.Process.Kill()
		}
		t.Fatalf("ctxconf did not end within %v", timeout)
	}
	said.SetReadDeadline(time.Now().Add(5 * time.Second)) // a process may have kept the pipe
	output, code := <-tail, command.ProcessState.ExitCode()
	bytes, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatalf("ctxconf ended with exit code %d, without a result\n%s", code, output)
	}
	judged := result{}
	if err := json.Unmarshal(bytes, &judged); err != nil {
		t.Fatal(err)
	}
	return judged
}

func lastOf(from io.Reader) string {
	kept, block := []byte{}, make([]byte, 1<<16)
	for {
		n, err := from.Read(block)
		kept = append(kept, block[:n]...)
		if len(kept) > textLimit {
			kept = append([]byte{}, kept[len(kept)-textLimit:]...)
		}
		if err != nil {
			return printable(string(kept))
		}
	}
}

// Texts of the program may have characters that control or reorder what a terminal shows.
func printable(text string) string {
	out := strings.Builder{}
	for i, c := range text {
		if i >= textLimit {
			break
		}
		if unicode.IsPrint(c) || c == '\n' {
			out.WriteRune(c)
		} else {
			fmt.Fprintf(&out, "\\u%04x", c)
		}
	}
	return out.String()
}
