// Package ctxconftest judges a program with ctxconf: each requirement is a subtest.
//
// The outcomes are those of ctxconf's junit.xml. A requirement that is broken fails, and one that could not be observed
// or does not apply is skipped with the reason, as is a known failure (--expect). The test itself fails if the program
// crashed, if nothing was judged, or if ctxconf ended with an exit code that no requirement explains.
//
// The program ctxconf is $CTXCONF_PROGRAM, or else the one in PATH.
package ctxconftest

import (
	"encoding/xml"
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

type report struct {
	Properties []struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	} `xml:"testsuite>properties>property"`
	Cases []testCase `xml:"testsuite>testcase"`
}

type testCase struct {
	Class   string  `xml:"classname,attr"`
	Name    string  `xml:"name,attr"`
	Skipped *detail `xml:"skipped"`
	Failure *detail `xml:"failure"`
	Error   *detail `xml:"error"`
	Log     string  `xml:"system-out"`
}

type detail struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// Judge runs ctxconf once and makes its verdicts subtests of t.
func Judge(t *testing.T, program Program) {
	t.Helper()
	code, judged := run(t, program)
	ids, cases, ofRun := []string{}, map[string][]testCase{}, []testCase{}
	for _, one := range judged.Cases {
		if strings.HasPrefix(one.Class, "ctxconf.") {
			ofRun = append(ofRun, one)
			continue
		}
		if cases[one.Name] == nil {
			ids = append(ids, one.Name)
		}
		cases[one.Name] = append(cases[one.Name], one)
	}
	explained := code == 0
	for _, id := range ids {
		explained = explained || isBroken(cases[id])
		t.Run(id, func(t *testing.T) { say(t, cases[id]) })
	}
	if !explained || isBroken(ofRun) {
		t.Errorf("ctxconf ended with exit code %s", judged.exit())
	}
	say(t, ofRun)
}

func (r report) exit() string {
	for _, property := range r.Properties {
		if property.Name == "exit" {
			return property.Value
		}
	}
	return ""
}

func isBroken(cases []testCase) bool {
	for _, one := range cases {
		if one.Failure != nil || one.Error != nil {
			return true
		}
	}
	return false
}

// A requirement has a case for each program that published, the worst first.
func say(t *testing.T, cases []testCase) {
	t.Helper()
	for _, one := range cases {
		for _, wrong := range []*detail{one.Failure, one.Error} {
			if wrong != nil {
				t.Errorf("%s\n%s", wrong.Message, wrong.Text)
			}
		}
		if one.Log != "" {
			t.Log(one.Log)
		}
	}
	if !isBroken(cases) && len(cases) > 0 && cases[0].Skipped != nil {
		t.Skip(cases[0].Skipped.Message)
	}
}

// The exit code of ctxconf and its report, which agree.
func run(t *testing.T, program Program) (int, report) {
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
	if deadline, ok := t.Deadline(); ok {
		left := time.Until(deadline) - time.Minute/2
		if left <= 0 {
			t.Fatalf("go test ends in less than 30 s, which it takes to end ctxconf: use a longer -timeout")
		}
		if left < timeout {
			timeout = left
		}
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
			<-ended
		}
		t.Fatalf("ctxconf did not end within %v", timeout)
	}
	said.SetReadDeadline(time.Now().Add(5 * time.Second)) // a process may have kept the pipe
	output, code := <-tail, command.ProcessState.ExitCode()
	bytes, err := os.ReadFile(filepath.Join(out, "junit.xml"))
	if err != nil {
		t.Fatalf("ctxconf ended with exit code %d, without a result\n%s", code, output)
	}
	judged := report{}
	if err := xml.Unmarshal(bytes, &judged); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(judged.exit(), fmt.Sprintf("%d: ", code)) {
		t.Fatalf("ctxconf ended with exit code %d, but its report says %s\n%s", code, judged.exit(), output)
	}
	return code, judged
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

// What a program prints may have characters that control or reorder what a terminal shows.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) || c == '\n' {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
