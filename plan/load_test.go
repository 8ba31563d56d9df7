package plan

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

var update = flag.Bool("update", false, "write the golden files")

// samePlan compares what a plan says, not where it was read.
var samePlan = cmp.Options{
	cmpopts.IgnoreUnexported(Plan{}),
	cmpopts.IgnoreFields(Plan{}, "File"),
	cmpopts.IgnoreFields(Trigger{}, "Graph"),
}

func files(t testing.TB, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, p := range patterns {
		list, err := filepath.Glob(p)
		if err != nil || len(list) == 0 {
			t.Fatalf("no files %s (%v)", p, err)
		}
		all = append(all, list...)
	}
	return all
}

func testSuite(t testing.TB) *Suite {
	t.Helper()
	s, err := LoadSuite("testdata/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestValidPlans(t *testing.T) {
	for _, file := range files(t, "testdata/valid-*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Validate(testSuite(t)); err != nil {
				t.Fatal(err)
			}
			for i, a := range p.Actions {
				if a.Trigger.Graph == nil {
					t.Errorf("action %d has no graph", i)
				}
			}
			checkRoundTrip(t, p)
			golden := strings.TrimSuffix(file, ".yaml") + ".canonical"
			got, err := Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, golden, string(got))
		})
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// checkRoundTrip writes a plan and reads it again.
func checkRoundTrip(t testing.TB, p *Plan) {
	t.Helper()
	text, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := p.File
	if file == "" {
		file = "built.yaml"
	}
	again, err := Parse(text, file)
	if err != nil {
		t.Fatalf("what Marshal wrote does not load: %v\n%s", err, text)
	}
	if diff := cmp.Diff(p, again, samePlan); diff != "" {
		t.Fatalf("read again (-before +after):\n%s\n%s", diff, text)
	}
}

// Each invalid file ends with comments that list its errors: "# want line:col: message". $actionTypes stands for the
// names of all types of actions, see TestOrderOfActionTypes. A plan without mistakes of its own is checked against the
// suite.
func TestInvalidPlans(t *testing.T) {
	for _, file := range files(t, "testdata/invalid-*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := Load(file)
			if err == nil {
				err = p.Validate(testSuite(t))
			}
			checkWanted(t, file, err)
		})
	}
}

func checkWanted(t *testing.T, file string, err error) {
	t.Helper()
	data, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatal(readErr)
	}
	var want []string
	for _, line := range strings.Split(string(data), "\n") {
		if w, ok := strings.CutPrefix(line, "# want "); ok {
			want = append(want, file+":"+strings.ReplaceAll(w, "$actionTypes", strings.Join(actionTypes(), ", ")))
		}
	}
	var list Errors
	if !errors.As(err, &list) {
		t.Fatalf("error %v (%T), want Errors", err, err)
	}
	if diff := cmp.Diff(want, strings.Split(list.Error(), "\n")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestBadFiles(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1,
			c-1, c-1, c-1, c-1, c-1, c-1)
	}
	tests := []struct{ name, text, want string }{
		{"empty", "", "f.yaml:1:1: the file is empty; a plan is a YAML mapping"},
		{"only a comment", "# nothing\n", "f.yaml:1:1: the file is empty; a plan is a YAML mapping"},
		{"null", "---\n~\n", "f.yaml:1:1: the file is empty; a plan is a YAML mapping"},
		{"list", "- a\n", "f.yaml:1:1: a plan must be a mapping, not a list"},
		{"text", "hello", "f.yaml:1:1: a plan must be a mapping, not text"},
		{"tab", "a:\n\tb: 1\n", "f.yaml:2:1: not YAML: found character that cannot start any token"},
		{"unclosed", "actions: [", "f.yaml:1:1: not YAML: did not find expected node content"},
		{"not UTF-8", "a: \xff\xfe", "f.yaml:1:4: not YAML: invalid leading UTF-8 octet"},
		{"binary", "\x00\x01\x02", "f.yaml:1:1: not YAML: control characters are not allowed"},
		{"two documents", "actions: []\n---\nactions: []\n", "f.yaml:3:1: a second document; a plan file holds one"},
		{"endless alias", "actions: &a [*a]\n", "f.yaml:1:14: alias *a is inside its own anchor"},
		{"Latin-1", "testName: x\ndescription: caf\xe9\n", "f.yaml:2:17: not YAML: incomplete UTF-8 octet"},
		{"NUL", "testName: x\ndescription: caf\x00\n", "f.yaml:2:17: not YAML: control characters are not allowed"},
		{"UTF-16 without a mark", "a\x00:\x00", "f.yaml:1:2: not YAML: control characters are not allowed"},
		{"tab before a field", "actions:\n- actionType: killController\n\ttrigger: {}\n",
			"f.yaml:3:1: not YAML: found a tab character that violates indentation"},
		{"a document behind an empty one", "actions: []\n---\n---\nactions: []\n",
			"f.yaml:4:1: a second document; a plan file holds one"},
		{"endless merge through a list", "actions:\n- &a {<<: [*a]}\n",
			"f.yaml:2:12: alias *a is inside its own anchor"},
		{"mapping in itself", "actions:\n- &x {trigger: *x}\n", "f.yaml:2:16: alias *x is inside its own anchor"},
		{"unknown alias", "a: *ab\nactions: *a\n", "f.yaml:1:4: not YAML: unknown anchor 'ab' referenced"},
		{"unknown alias", "b: &ab 1\na: *ab\nactions: *a\n", "f.yaml:3:10: not YAML: unknown anchor 'a' referenced"},
		{"alias bomb", bomb, "f.yaml:6:4: with its aliases resolved the file has more than 200000 nodes"},
		{"alias of a long text", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 1000) + "]",
			"f.yaml:2:4: with its aliases resolved the file has more than 200000 nodes"},
		{"deep", "a: " + strings.Repeat("[", 600) + strings.Repeat("]", 600), "f.yaml:1:504: nested deeper than 500"},
		{"very deep", strings.Repeat("[", 100_000), "f.yaml:1:1: not YAML: exceeded max depth of 10000"},
		{"merge bomb", strings.Replace(strings.ReplaceAll(bomb, "x, x", "{k: v}, {k: v}"), "a: &a [", "a: &a [", 1) +
			"k: {<<: *j}\n", "f.yaml:5:4: with its aliases resolved the file has more than 200000 nodes"},
		{"endless merge", "actions: [&a {<<: *a}]\n", "f.yaml:1:19: alias *a is inside its own anchor"},
		{"key that is not text", "? [a]\n: 1\n", "f.yaml:1:3: a field name in a plan must be text, not a list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.text), "f.yaml")
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
	if _, err := Parse([]byte("actions: ["+strings.Repeat("[],", 300_000)+"]"), "f.yaml"); err == nil ||
		!strings.Contains(err.Error(), "has more lines and items than any plan") {
		t.Errorf("many items: %v", err)
	}
	if _, err := Load("testdata/nowhere.yaml"); err == nil || err.Error() != "testdata/nowhere.yaml: no such file" {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load("testdata"); err == nil || err.Error() != "testdata: read: is a directory" {
		t.Errorf("directory: %v", err)
	}
	if _, err := Parse(make([]byte, yamlfile.MaxSize+1), "f.yaml"); err == nil ||
		!strings.Contains(err.Error(), "the file has more than the allowed 8388608 bytes") {
		t.Errorf("large file: %v", err)
	}
}

// Files that are malformed on purpose are rejected in reasonable time, whatever the YAML package does with them.
func TestHostileFiles(t *testing.T) {
	for name, text := range map[string]string{
		"braces":        strings.Repeat("{", 9_000),
		"braces closed": strings.Repeat("{", 9_000) + strings.Repeat("}", 9_000),
		"sequences":     strings.Repeat("- ", 9_000),
		"keys":          strings.Repeat("? ", 9_000),
		"colons":        strings.Repeat("a: ", 100_000),
		"long scalar":   "testName: " + strings.Repeat("a ", 300_000),
		"long key":      strings.Repeat("a", 1_000_000) + ": 1",
		"quotes":        strings.Repeat("\"", 100_000),
		"anchors":       "a: " + strings.Repeat("&a ", 100_000),
		"many anchors":  strings.Repeat("- &a b\n", 30_000),
		"comments":      strings.Repeat("# a\n", 100_000) + "actions: []",
		"documents":     strings.Repeat("---\n", 100_000),
		"indents":       indented(1_000),
		"same fields":   strings.Repeat("testName: a\n", 5_000),
		"tags":          strings.Repeat("!a ", 100_000) + "b",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := Parse([]byte(text), "f.yaml")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
			_ = err
		})
	}
}

func indented(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestCheckResources(t *testing.T) {
	p, err := Load("testdata/valid-all-actions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	err = p.CheckResources(func(k ResourceKey) error {
		asked = append(asked, k.String())
		if k.Type == "database" || k.Type == "secret" {
			return errors.New("not served")
		}
		return nil
	})
	want := []string{"11:17", "17:26", "77:36", "85:16", "111:18", "115:18"}
	var got []string
	for _, e := range err.(Errors) {
		got = append(got, fmt.Sprintf("%d:%d", e.Line, e.Col))
	}
	if len(asked) != 13 {
		t.Errorf("asked for %d keys: %v", len(asked), asked)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("positions (-want +got):\n%s\n%v", diff, err)
	}
}

// Line breaks, encodings and what tools put around a document change neither what a plan says nor where its mistakes
// are.
func TestEncodings(t *testing.T) {
	const text = "testName: caf\u00e9\nactions:\n- actionType: killController\n  trigger:\n    definitions:\n" +
		"    - triggerName: a\n      condition: {triggerType: none}\n" +
		"    expression: |\n      a;\n      EXPR\n"
	utf16of := func(order binary.AppendByteOrder, mark string) func(string) string {
		return func(s string) string {
			out := []byte(mark)
			for _, u := range utf16.Encode([]rune(s)) {
				out = order.AppendUint16(out, u)
			}
			return string(out)
		}
	}
	for name, encode := range map[string]func(string) string{
		"plain":          func(s string) string { return s },
		"BOM":            func(s string) string { return "\ufeff" + s },
		"CRLF":           func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"UTF-16 LE":      utf16of(binary.LittleEndian, "\xff\xfe"),
		"UTF-16 BE":      utf16of(binary.BigEndian, "\xfe\xff"),
		"document marks": func(s string) string { return strings.Replace(s, "\n", " # first\n", 1) + "...\n---\n" },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse([]byte(encode(strings.Replace(text, "EXPR", "a", 1))), "f.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if p.TestName != "caf\u00e9" || p.Actions[0].Trigger.Expression != "a;a" {
				t.Errorf("got %q, %q", p.TestName, p.Actions[0].Trigger.Expression)
			}
			_, err = Parse([]byte(encode(strings.Replace(text, "EXPR", "b", 1))), "f.yaml")
			if want := `f.yaml:10:7: unknown trigger "b" (defined: a)`; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	if _, err := Parse([]byte("\ufefftestname: a\nactions: []\n"), "f.yaml"); err == nil ||
		!strings.HasPrefix(err.Error(), "f.yaml:1:1: unknown field") {
		t.Errorf("first line after a mark: %v", err)
	}
}

// The position of a mistake in an expression is right, however the expression is quoted.
func TestExpressionPositions(t *testing.T) {
	const head = "actions:\n- actionType: killController\n  trigger:\n    definitions: [{triggerName: a, condition: " +
		"{triggerType: none}}]\n"
	for _, test := range []struct{ expression, want string }{
		{"a;b", "5:19"},
		{"a;\tb", "5:20"},
		{"a;\n      a;\n      b", "7:7"},
		{"'a;b'", "5:20"},
		{"'a;\n\n      b'", "7:7"},
		{`"a;b"`, "5:20"},
		{`"a\u003b b"`, "5:26"},
		{`"\x61;\` + "\n       b\"", "6:8"},
		{"|\n      a;\n      b", "7:7"},
		{"|2-\n         a;\n        b", "7:9"},
		{">\n      a;\n      b", "7:7"},
		{">+\n      a;\n\n        b\n\n", "8:9"},
		{">- # why\n      a;\n      (a|b)", "7:10"},
		{"&x a;b", "5:22"},
		{"!!str a;b", "5:25"},
	} {
		_, err := Parse([]byte(head+"    expression: "+test.expression+"\n"), "f.yaml")
		if want := "f.yaml:" + test.want + `: unknown trigger "b" (defined: a)`; err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", test.expression, err, want)
		}
	}
}

func TestNumbersAndDurations(t *testing.T) {
	for _, test := range []struct{ condition, want string }{
		{"{triggerType: onTimeout, timeout: -5s}", "5:52: timeout: a duration must not be negative"},
		{"{triggerType: onTimeout, timeout: 9999999h}", "5:52: timeout: 9999999h is longer than a duration can be"},
		{"{triggerType: onTimeout, timeout: 5}", "5:52: timeout: a duration needs a unit; write 5s"},
		{"{triggerType: onReconcile, resourceKey: pod/default/a, repeat: 99999999999999999999}",
			"5:81: repeat: the number 99999999999999999999 is too large"},
		{"{triggerType: onReconcile, resourceKey: pod/default/a, repeat: -99999999999999999999}",
			"5:81: repeat: the number -99999999999999999999 is too large"},
		{"{triggerType: onReconcile, resourceKey: pod/default/a, repeat: 1e3}",
			"5:81: repeat must be a whole number, not 1e3"},
		{"{triggerType: onReconcile, resourceKey: pod/default/a, repeat: 2.5}",
			"5:81: repeat must be a whole number, not 2.5"},
		{"{triggerType: onReconcile, resourceKey: pod/default/a, repeat: -1}",
			"5:81: repeat is -1; it must be at least 1"},
		{"{triggerType: onReconcile, resourceKey: pod/default/a, repeat: '2'}",
			"5:81: repeat must be a whole number, not text"},
		{`{triggerType: onObjectDeletion, resourceKey: pod/default/a, prevState: '{"a": 1e999}'}`,
			"5:89: prevState is not JSON: number 1e999 is too large; write it as YAML"},
		{`{triggerType: onObjectDeletion, resourceKey: pod/default/a, prevState: '{"a": 1, "a": 2}'}`,
			"5:89: prevState is not JSON: duplicate field \"a\"; write it as YAML"},
	} {
		text := "actions:\n- actionType: killController\n  trigger:\n    definitions:\n    - condition: " +
			test.condition + "\n      triggerName: a\n"
		if !strings.Contains(test.condition, "onTimeout") {
			text += "      observationPoint: {timing: " + map[bool]string{true: "afterReconcile",
				false: "afterControllerRecv"}[strings.Contains(test.condition, "onReconcile")] + "}\n"
		}
		_, err := Parse([]byte(text), "f.yaml")
		if err == nil || err.Error() != "f.yaml:"+test.want {
			t.Errorf("%s: got %v, want %s", test.condition, err, test.want)
		}
	}
}
