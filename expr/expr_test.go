package expr

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "update the golden files")

func mustParse(t testing.TB, text string) *Expr {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return e
}

func TestString(t *testing.T) {
	tests := []struct{ text, want string }{
		{"a", "a"},
		{" a ;\n\tb ", "a;b"},
		{"a;b|c&d", "a;b|c&d"},
		{"a;(b|(c&d))", "a;b|c&d"},
		{"((a;b));c", "a;b;c"},
		{"a;(b;c)", "a;b;c"},
		{"a|(b|c)|d", "a|b|c|d"},
		{"(a|b);c", "a|b;c"},
		{"(a|b)&c", "(a|b)&c"},
		{"(a;b)|c", "(a;b)|c"},
		{"(a;b)&(c;d)", "(a;b)&(c;d)"},
		{"a&(b&(c|d))", "a&b&(c|d)"},
		{"cond1;cond2;(cond3|cond4&(cond5;cond6))", "cond1;cond2;cond3|cond4&(cond5;cond6)"},
		{"pod-0.ready_1;a.b", "pod-0.ready_1;a.b"},
		{"a;a", "a;a"},
		{"Größe;名前", "Größe;名前"},
		{"1", "1"},
	}
	for _, tt := range tests {
		if got := mustParse(t, tt.text).String(); got != tt.want {
			t.Errorf("Parse(%q).String() = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestKeep(t *testing.T) {
	for _, tt := range []struct{ text, without, want string }{
		{"a", "", "a"},
		{"a", "a", ""},
		{"a;b;c", "b", "a;c"},
		{"a;b|c&d", "c", "a;b|d"},
		{"a;b|c&d", "b", "a;c&d"},
		{"a;b|c&d", "cd", "a;b"},
		{"(a;b)|c", "a", "b|c"},
		{"(a|b);c", "ab", "c"},
		{"(a;b)&(c;d)", "ad", "b&c"},
		{"a;(b|(c;d))", "b", "a;c;d"},
		{"a&(b|c);a", "bc", "a;a"},
	} {
		e := mustParse(t, tt.text)
		before := e.String()
		names := e.Names()
		kept := e.Keep(func(node int) bool { return !strings.Contains(tt.without, names[node].Name) })
		got := ""
		if kept != nil {
			got = kept.String()
			left := slices.DeleteFunc(names, func(n Name) bool { return strings.Contains(tt.without, n.Name) })
			if got := kept.Names(); !slices.Equal(got, left) || kept.Graph() == nil {
				t.Errorf("%q without %q: names %v, want %v, at their places in the text", tt.text, tt.without, got,
					left)
			}
		}
		if got != tt.want {
			t.Errorf("%q without %q: %q, want %q", tt.text, tt.without, got, tt.want)
		}
		if e.String() != before {
			t.Errorf("%q has become %q", tt.text, e)
		}
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		text string
		want Error
	}{
		{"", Error{0, `the expression is empty`}},
		{" \n ", Error{3, `the expression is empty`}},
		{"a b", Error{2, `unexpected "b": expected ";", "|", "&" or the end`}},
		{"a (b)", Error{2, `unexpected "(": expected ";", "|", "&" or the end`}},
		{"a;", Error{2, `unexpected end: expected a name or "("`}},
		{"a; ", Error{3, `unexpected end: expected a name or "("`}},
		{"(", Error{1, `unexpected end: expected a name or "("`}},
		{"&a", Error{0, `unexpected "&": expected a name or "("`}},
		{"a|;b", Error{2, `unexpected ";": expected a name or "("`}},
		{"a&&b", Error{2, `unexpected "&": expected a name or "("`}},
		{"()", Error{1, `unexpected ")": expected a name or "("`}},
		{"(a", Error{0, `"(" is never closed`}},
		{"x;(a;(b|c)", Error{2, `"(" is never closed`}},
		{"a)", Error{1, `")" without "("`}},
		{"a;b$", Error{3, `unexpected "$": a name consists of letters, digits, "_", "-" and "."`}},
		{"a,b", Error{1, `unexpected ",": a name consists of letters, digits, "_", "-" and "."`}},
		{"a \xff", Error{2, "invalid UTF-8 encoding"}},
		{"a;ü b", Error{5, `unexpected "b": expected ";", "|", "&" or the end`}},
		{"a;\n(b|c", Error{3, `"(" is never closed`}},
		{"(a;b))", Error{5, `")" without "("`}},
		{strings.Repeat("a;(", MaxNesting+1) + "b" + strings.Repeat(")", MaxNesting+1),
			Error{3*MaxNesting + 2, "more than 100 nested parentheses"}},
		{strings.Repeat("(", 100_000), Error{MaxNesting, "more than 100 nested parentheses"}},
	}
	for _, tt := range tests {
		_, err := Parse(tt.text)
		got, ok := err.(*Error)
		if !ok {
			t.Errorf("Parse(%q): error %v, want an *Error", tt.text, err)
			continue
		}
		if *got != tt.want {
			t.Errorf("Parse(%q): %+v, want %+v", tt.text, *got, tt.want)
		}
	}
	_, err := Parse("a;b)")
	if want := `3: ")" without "("`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestGraphDrawing(t *testing.T) {
	tests := []struct{ name, text string }{
		{"design", "cond1;cond2;(cond3|cond4&(cond5;cond6))"},
		{"single", "a"},
		{"sequence", "a;b;c"},
		{"either", "a|b"},
		{"both", "a&b&c"},
		{"either-first", "(a|b);c"},
		{"either-within", "a;((b;(c|d))|e)"},
		{"both-of-either", "(a|b)&c"},
		{"two-eithers", "(a|b);(c|d)"},
		{"nested", "p;(a&(b;(c&d&e))&f);z"},
		{"mixed", "x;(a|b|c&(d;(e|f);g));y"},
		{"twice", "a;a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustParse(t, tt.text).Graph().String()
			golden := filepath.Join("testdata", tt.name+".graph")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("graph of %s:\n%s\nwant\n%s", tt.text, got, want)
			}
		})
	}
}

func TestMermaid(t *testing.T) {
	got := mustParse(t, "cond1;cond2;(cond3|cond4&(cond5;cond6))").Graph().Mermaid()
	golden := filepath.Join("testdata", "design.mermaid")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The drawing in the documentation of Graph.String, character by character.
func TestGraphDrawingAsDocumented(t *testing.T) {
	const want = "" +
		"cond1 -> cond2 -> cond3 ----------------> *\n" +
		"             |--> cond4 ---------> (&) -> *\n" +
		"             |--> cond5 -> cond6 --^\n"
	if got := mustParse(t, "cond1;cond2;(cond3|cond4&(cond5;cond6))").Graph().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestGraphNodes(t *testing.T) {
	g := mustParse(t, "b;(a|b)&c").Graph()
	var names []string
	for n := range g.Len() {
		names = append(names, g.Name(n))
	}
	if got, want := strings.Join(names, " "), "b a b c"; got != want {
		t.Errorf("nodes %q, want %q: in text order, one for each occurrence", got, want)
	}
	if got, want := fmt.Sprint(mustParse(t, "bb; (a|b)").Names()), "[{bb 0} {a 5} {b 7}]"; got != want {
		t.Errorf("Names() = %s, want %s", got, want)
	}
}

// Each step lists the nodes satisfied at one moment; want lists what Satisfy returns and what is enabled then.
func TestProgress(t *testing.T) {
	tests := []struct {
		name, text string
		events     [][]int
		want       []string // "+enabled -disabled =Enabled()"
		done       bool
		reason     string
	}{
		{
			name: "sequence", text: "a;b", events: [][]int{{0}, {1}},
			want: []string{"+[1] -[] =[1]", "+[] -[] =[]"}, done: true,
		},
		{
			name: "same name twice", text: "a;a", events: [][]int{{0}, {1}},
			want: []string{"+[1] -[] =[1]", "+[] -[] =[]"}, done: true,
			reason: "each occurrence is its own node; another coordinator exits here",
		},
		{
			name: "one event does not walk two steps", text: "a;a", events: [][]int{{0, 1}},
			want:   []string{"+[1] -[] =[1]"},
			reason: "node 1 is not enabled when the event arrives",
		},
		{
			name: "both arms of an either at once", text: "(a|b);c", events: [][]int{{0, 1}, {2}},
			want: []string{"+[2] -[] =[2]", "+[] -[] =[]"}, done: true,
			reason: "another coordinator exits when both fire",
		},
		{
			name: "the other arm later", text: "(a|b);c", events: [][]int{{1}, {0}, {2}},
			want: []string{"+[2] -[0] =[2]", "+[] -[] =[2]", "+[] -[] =[]"}, done: true,
			reason: "later events of the other arm are ignored",
		},
		{
			name: "blanks around an operator", text: "a & b", events: [][]int{{1}, {0}},
			want: []string{"+[] -[] =[0]", "+[] -[] =[]"}, done: true,
			reason: "another parser makes the blanks a part of the names and never matches",
		},
		{
			name: "both at once", text: "a&b;c", events: [][]int{{0, 1}},
			want: []string{"+[2] -[] =[2]"},
		},
		{
			name: "a partly satisfied arm is dropped", text: "(a;b)|c", events: [][]int{{0}, {2}, {1}},
			want: []string{"+[1] -[] =[1 2]", "+[] -[1] =[]", "+[] -[] =[]"}, done: true,
		},
		{
			name: "enabled and dropped at one moment", text: "((a;b)|c);d", events: [][]int{{0, 2}},
			want:   []string{"+[3] -[] =[3]"},
			reason: "b must never be reported as enabled",
		},
		{
			name: "both arms take a step", text: "(a;b)|(a;c)", events: [][]int{{0, 2}},
			want: []string{"+[1 3] -[] =[1 3]"},
		},
		{
			name: "a both within a dropped arm", text: "(a&(b;c)&d)|e;f", events: [][]int{{1}, {4}, {5}},
			want: []string{"+[2] -[] =[0 2 3 4]", "+[5] -[0 2 3] =[5]", "+[] -[] =[]"}, done: true,
		},
		{
			name: "nodes out of range", text: "a", events: [][]int{{-1, 1, 7}, {0}},
			want: []string{"+[] -[] =[0]", "+[] -[] =[]"}, done: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewProgress(mustParse(t, tt.text).Graph())
			for i, nodes := range tt.events {
				before := p.Clone()
				enabled, disabled := p.Satisfy(nodes...)
				if got := fmt.Sprintf("+%v -%v =%v", enabled, disabled, p.Enabled()); got != tt.want[i] {
					t.Errorf("step %d: %s, want %s (%s)", i, got, tt.want[i], tt.reason)
				}
				again, _ := before.Satisfy(nodes...)
				if !slices.Equal(again, enabled) {
					t.Errorf("step %d: the clone enables %v, the original %v", i, again, enabled)
				}
			}
			if p.Done() != tt.done {
				t.Errorf("Done() = %v, want %v", p.Done(), tt.done)
			}
		})
	}
}

// never is a moment after all others.
const never = 1 << 30

// baseline evaluates an expression over a whole history of moments by its definition: a name enabled at moment s is
// satisfied at the first later moment that has its node. It returns the moment at which the term is satisfied, and
// stores for each node the span in which it is enabled.
func baseline(t *term, next *int, start, until int, history [][]int, spans [][2]int) int {
	switch t.op {
	case leaf:
		node := *next
		*next++
		at := never
		if start < never {
			for i := start + 1; i < len(history); i++ {
				if slices.Contains(history[i], node) {
					at = i
					break
				}
			}
		}
		spans[node] = [2]int{start, min(at, until)}
		return at
	case sequence:
		for _, k := range t.kids {
			start = baseline(k, next, start, until, history, spans)
			if start > until {
				// Dropped meanwhile: nothing after it is ever enabled.
				start = never
			}
		}
		return start
	case both:
		at := start
		for _, k := range t.kids {
			at = max(at, baseline(k, next, start, until, history, spans))
		}
		return at
	default:
		// The moment of the first arm is known only after all are evaluated; then each is evaluated again with that
		// end.
		first, at := *next, never
		for _, k := range t.kids {
			at = min(at, baseline(k, next, start, until, history, spans))
		}
		*next = first
		for _, k := range t.kids {
			baseline(k, next, start, min(at, until), history, spans)
		}
		return at
	}
}

// randomExpr returns the text of a random expression over names a to d.
func randomExpr(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return string(rune('a' + r.IntN(4)))
	}
	op := []string{";", "|", "&"}[r.IntN(3)]
	parts := make([]string, 2+r.IntN(2))
	for i := range parts {
		parts[i] = "(" + randomExpr(r, depth-1) + ")"
	}
	return strings.Join(parts, op)
}

func TestProgressAgainstBaseline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		e := mustParse(t, randomExpr(r, 3))
		g := e.Graph()
		history := make([][]int, 1+r.IntN(12))
		for i := 1; i < len(history); i++ {
			// An event is a set of names and satisfies every occurrence of them.
			names := string([]byte{byte('a' + r.IntN(4)), byte('a' + r.IntN(4))}[:1+r.IntN(2)])
			for n := range g.Len() {
				if strings.Contains(names, g.Name(n)) {
					history[i] = append(history[i], n)
				}
			}
			r.Shuffle(len(history[i]), func(a, b int) { history[i][a], history[i][b] = history[i][b], history[i][a] })
		}
		spans := make([][2]int, g.Len())
		next := 0
		done := baseline(e.root, &next, 0, never, history, spans)
		p := NewProgress(g)
		for i := range history {
			before := p.Enabled()
			enabled, disabled := p.Satisfy(history[i]...)
			var want []int
			for n, s := range spans {
				if s[0] <= i && i < s[1] {
					want = append(want, n)
				}
			}
			if got := p.Enabled(); !slices.Equal(got, want) {
				t.Fatalf("%s, history %v: enabled after %d: %v, want %v", e, history, i, got, want)
			}
			var wantNew, wantGone []int
			for _, n := range p.Enabled() {
				if !slices.Contains(before, n) {
					wantNew = append(wantNew, n)
				}
			}
			for _, n := range before {
				if !p.IsEnabled(n) && !slices.Contains(history[i], n) {
					wantGone = append(wantGone, n)
				}
			}
			if !slices.Equal(enabled, wantNew) || !slices.Equal(disabled, wantGone) {
				t.Fatalf("%s, history %v: step %d gave +%v -%v, want +%v -%v", e, history, i, enabled, disabled,
					wantNew, wantGone)
			}
			if p.Done() != (done <= i) {
				t.Fatalf("%s, history %v: Done() after %d is %v, want satisfied at %d", e, history, i, p.Done(), done)
			}
		}
	}
}

func TestParsePrintParse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		text := randomExpr(r, 4)
		checkStable(t, text)
	}
}

func checkStable(t testing.TB, text string) *Expr {
	t.Helper()
	e := mustParse(t, text)
	printed := e.String()
	again := mustParse(t, printed)
	if again.String() != printed {
		t.Fatalf("%q prints as %q, and that as %q", text, printed, again)
	}
	g, h := e.Graph(), again.Graph()
	names := func(g *Graph) (names []string) {
		for n := range g.Len() {
			names = append(names, g.Name(n))
		}
		return names
	}
	if !reflect.DeepEqual(g.Tree(), h.Tree()) || !slices.Equal(names(g), names(h)) {
		t.Fatalf("%q and what it prints as, %q, have different graphs", text, printed)
	}
	if len(printed) > len(text) {
		t.Fatalf("%q prints longer: %q", text, printed)
	}
	return e
}

// Large expressions must work: 100,000 names and parentheses as deep as allowed.
func TestLarge(t *testing.T) {
	const names = 100_000
	tests := map[string]string{
		"sequence":          strings.Repeat("a;", names-1) + "a",
		"either":            strings.Repeat("a|", names-1) + "a",
		"both":              strings.Repeat("a&", names-1) + "a",
		"parentheses":       strings.Repeat("(", MaxNesting) + "a" + strings.Repeat(")", MaxNesting),
		"same, nested":      strings.Repeat("a;(", MaxNesting) + "a" + strings.Repeat(")", MaxNesting),
		"parentheses, wide": strings.Repeat("(a|(b));", names/20) + "a",
		"alternating":       alternate(MaxNesting, ";", "|", true),
		"alternating, left": alternate(MaxNesting, "|", "&", false),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			g := checkStable(t, text).Graph()
			if s := g.String(); g.Len() > MaxDrawn && len(s) > 4*len(text) {
				t.Errorf("the drawing has %d bytes", len(s))
			}
			p := NewProgress(g)
			for i := 0; i < g.Len() && !p.Done(); i++ {
				p.Satisfy(i)
			}
			if !p.Done() {
				t.Error("not done after every node in text order")
			}
		})
	}
}

// alternate nests two operators n deep, to the right or to the left.
func alternate(n int, op1, op2 string, right bool) string {
	var b strings.Builder
	if right {
		for i := range n {
			b.WriteString("a" + []string{op1, op2}[i%2] + "(")
		}
		return b.String() + "a" + strings.Repeat(")", n)
	}
	b.WriteString(strings.Repeat("(", n) + "a")
	for i := range n {
		b.WriteString(")" + []string{op1, op2}[i%2] + "a")
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a", "a;b|c&d", "cond1;cond2;(cond3|cond4&(cond5;cond6))", "((a)", "a;", "a b", "é.-_",
		"\xff", "(a|b);c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			own, ok := err.(*Error)
			if !ok || own.Offset < 0 || own.Offset > len(text) || own.Message == "" {
				t.Fatalf("Parse(%q): %#v", text, err)
			}
			return
		}
		checkStable(t, text)
		g := e.Graph()
		_ = g.String()
		p := NewProgress(g)
		for i := 0; i < g.Len(); i++ {
			p.Satisfy(i)
		}
		if !p.Done() {
			t.Fatalf("%q is not done after every node in text order", text)
		}
	})
}

func thousand() string {
	var b strings.Builder
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(";|&"[i%3])
		}
		fmt.Fprintf(&b, "trigger%d", i)
	}
	return b.String()
}

func BenchmarkParseToGraph1000(b *testing.B) {
	text := thousand()
	b.ReportAllocs()
	for b.Loop() {
		e, err := Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		_ = e.Graph()
	}
}

func BenchmarkSatisfy(b *testing.B) {
	g := mustParse(b, thousand()).Graph()
	p := NewProgress(g)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if p.Done() {
			p, i = NewProgress(g), 0
		}
		p.Satisfy(i)
		i++
	}
}

func TestTree(t *testing.T) {
	e, err := Parse("a;(b|c&(d;e));f")
	if err != nil {
		t.Fatal(err)
	}
	node := func(n int) Tree { return Tree{Node: n} }
	join := func(op string, kids ...Tree) Tree { return Tree{Op: op, Node: -1, Kids: kids} }
	want := join(";", node(0), join("|", node(1), join("&", node(2), join(";", node(3), node(4)))), node(5))
	if got := e.Graph().Tree(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
