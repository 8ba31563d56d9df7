package processlog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nilPanic = `starting
panic: runtime error: invalid memory address or nil pointer dereference [recovered]
	panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1]

goroutine 1 [running]:
main.reconcile(...)
	/src/main.go:10 +0x1
`

const klogPanic = `I0101 00:00:00.000000 1 main.go:1] starting
E0101 00:00:00.000000 1 panic.go:115] "Observed a panic" controller="database" ` +
	`panic="runtime error: index out of range [1] with length 1" panicGoValue="x" stacktrace=<
	goroutine 7 [running]:
	main.(*reconciler).Reconcile()
 >
I0101 00:00:00.000000 1 main.go:1] goes on
`

const zapPanic = `{"level":"error","ts":"2026","msg":"Observed a panic","controller":"database",` +
	`"panic":"boom \"x\"","stacktrace":"goroutine 7 [running]:\nmain.f()\n\t/src/a.go:1"}
{"level":"info","msg":"goes on"}
`

func TestExits(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	started, ended := time.Unix(100, 0), time.Unix(200, 0)
	process := func(log string, code int) record.Process {
		return record.Process{Controller: "op", Container: "manager", Started: started, Ended: ended, ExitCode: code,
			LogFile: log}
	}
	outside := func(p record.Process, met string) record.Process { p.MetMachine = met; return p }
	running := func(p record.Process) record.Process { p.Ended = time.Time{}; return p }
	planned := func(p record.Process) record.Process { p.Planned = true; return p }
	twice := process(write("twice", nilPanic+nilPanic), 2)
	second := twice
	second.LogStart = int64(len(nilPanic))

	for _, test := range []struct {
		name      string
		processes []record.Process
		want      []string // judge: title
		detail    string   // of the first, a part
	}{
		{"it runs", []record.Process{running(process(write("a", "x\n"), 0))}, nil, ""},
		{"the plan killed it", []record.Process{planned(process(write("a", "x\n"), 137))}, nil, ""},
		{"it exits", []record.Process{process(write("exit1", "one\ntwo"), 1)},
			[]string{"crash: controller op exited on its own: exit code 1"}, "one\ntwo"},
		{"it exits with code 0", []record.Process{process(write("exit2", ""), 0)},
			[]string{"crash: controller op exited on its own: exit code 0"}, "it printed nothing"},
		{"something else killed it", []record.Process{process(write("exit3", "x\n"), 137)},
			[]string{"crash: controller op exited on its own: exit code 137 (SIGKILL)"}, ""},
		{"its log is gone", []record.Process{process(filepath.Join(dir, "none"), 1)},
			[]string{"crash: controller op exited on its own: exit code 1"}, "it printed nothing"},
		{
			"leader election",
			[]record.Process{process(write("leader",
				"E leaderelection.go] error retrieving resource lock\n{\"msg\":\"problem running "+
					"manager\",\"error\":\"leader election lost\"}\n"), 1)},
			[]string{"leadership: controller op lost its leader election and exited: exit code 1"},
			"leader election lost",
		},
		{
			"without hooks, and the port is taken",
			[]record.Process{outside(process(write("port", "listen tcp :8080: bind: address already in use\n"), 1),
				"port :8080 is taken here")},
			[]string{"environment: controller op exited because of what it has met on this machine: exit code 1"},
			"port :8080 is taken here\nlisten tcp",
		},
		{
			"without hooks, in a panic",
			[]record.Process{outside(process(write("port panic", nilPanic), 2), "port :8080 is taken here")},
			[]string{"environment: controller op exited because of what it has met on this machine: exit code 2"},
			"port :8080 is taken here",
		},
		{
			"a panic", []record.Process{process(write("panic", nilPanic), 2)},
			[]string{"panic: controller op died of a panic: runtime error: invalid memory address or nil pointer " +
				"dereference"},
			"exit code 2\npanic: runtime error: invalid memory address or nil pointer dereference " +
				"[recovered]\n\tpanic: runtime",
		},
		{
			"concurrent map writes",
			[]record.Process{process(write("fatal", "fatal error: concurrent map writes\n\ngoroutine 1 [running]:\n"),
				2)},
			[]string{"panic: controller op died of a panic: concurrent map writes"}, "goroutine 1",
		},
		{
			"the same panic at two starts in one log", []record.Process{twice, second},
			[]string{"panic: controller op died of a panic: runtime error: invalid memory address or nil pointer " +
				"dereference"}, "it happened 2 times; the first time:\nexit code 2\n",
		},
		{
			"a recovered panic, klog", []record.Process{running(process(write("klog", klogPanic+klogPanic), 0))},
			[]string{"panic: controller op panicked: runtime error: index out of range [1] with length 1"},
			"main.(*reconciler).Reconcile()",
		},
		{
			"a recovered panic, zap", []record.Process{planned(process(write("zap", zapPanic), 137))},
			[]string{`panic: controller op panicked: boom "x"`}, "goroutine 7 [running]:\nmain.f()\n\t/src/a.go:1",
		},
		{
			"a recovered panic and an exit later",
			[]record.Process{process(write("both", zapPanic+strings.Repeat("x\n", 100)+"bye\n"), 1)},
			[]string{`panic: controller op panicked: boom "x"`, "crash: controller op exited on its own: exit code 1"},
			"",
		},
		{ // regression: it was reported twice
			"a panic that is logged, then ends the process",
			[]record.Process{process(write("echo", klogPanic+strings.Repeat("\tmain.f()\n", 40)+
				"panic: runtime error: index out of range [1] with length 1 [recovered]\n\tpanic: runtime error: "+
				"index out of range [1] with length 1\n\ngoroutine 7 [running]:\n"), 2)},
			[]string{"panic: controller op died of a panic: runtime error: index out of range [1] with length 1"},
			"exit code 2",
		},
		{
			"a panic that is logged, and another that ends the process",
			[]record.Process{process(write("other",
				klogPanic+strings.Repeat("x\n", 40)+"panic: boom\n\ngoroutine 7 [running]:\n"), 2)},
			[]string{"panic: controller op panicked: runtime error: index out of range [1] with length 1",
				"panic: controller op died of a panic: boom"}, "",
		},
		{
			"an old panic of apimachinery",
			[]record.Process{running(process(write("old",
				"E0101 runtime.go:79] Observed a panic: \"invalid memory address\" (runtime error: invalid memory "+
					"address)\n"), 0))}, []string{"panic: controller op panicked: invalid memory address"}, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			findings := Exits("", test.processes)
			for _, f := range findings {
				got = append(got, f.Judge+": "+f.Title)
				if f.Subject != "op" || f.Time.IsZero() {
					t.Errorf("%+v", f)
				}
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if len(findings) > 0 && !strings.Contains(findings[0].Detail, test.detail) {
				t.Errorf("detail\n%s\nwant\n%s", findings[0].Detail, test.detail)
			}
		})
	}
}

func TestTail(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %d %s\n", i, strings.Repeat("x", 10*i))
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n"+text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(Tail(record.Process{LogFile: path, LogStart: 7}, 3), "\n")
	if len(got) != 3 || !strings.HasPrefix(got[2], "line 999 ") || len(got[2]) > maxErrorLine+3 {
		t.Errorf("got %d lines, the last begins %.20q", len(got), got[len(got)-1])
	}
	repeated := strings.Join([]string{
		`I1129 11:50:15.1 1 a.go:1] "started"`,
		`E1129 11:50:15.2 1 a.go:2] "no" node="/node-1" id="ba9d5a56-4a7b-4407-a9d3-6d8c6ef90ba2"`,
		`E1129 11:50:16.3 1 a.go:2] "no" node="/node-2" id="2a9d5a56-4a7b-4407-a9d3-6d8c6ef90ba2"`,
		`I1129 11:50:17.4 1 a.go:3] renewed`,
		`E1129 11:50:18.5 1 a.go:2] "no" node="/node-3" id="3a9d5a56-4a7b-4407-a9d3-6d8c6ef90ba2"`,
		"panic: gone", "	/a.go:1 +0x1", "	/a.go:2 +0x2",
	}, "\n")
	if err := os.WriteFile(path, []byte(repeated), 0o600); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`I1129 11:50:15.1 1 a.go:1] "started"`,
		`I1129 11:50:17.4 1 a.go:3] renewed`,
		`E1129 11:50:18.5 1 a.go:2] "no" node="/node-3" id="3a9d5a56-4a7b-4407-a9d3-6d8c6ef90ba2" (3 similar lines)`,
		"panic: gone", "	/a.go:1 +0x1", "	/a.go:2 +0x2",
	}, "\n")
	if got := Tail(record.Process{LogFile: path}, 6); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Tail(record.Process{LogFile: path + "-none"}, 3); !strings.Contains(got, "no such file") {
		t.Errorf("got %q", got)
	}
}
