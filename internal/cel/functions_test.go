package cel

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
)

// secret is an object for conditions on functions.
var secret = map[string]any{"object": map[string]any{
	"data":   map[string]any{"password": "c2VjcmV0"},
	"spec":   map[string]any{"storage": "1Gi", "half": "512Mi", "cpu": "1500m", "bad": "1GiB", "count": int64(2)},
	"list":   []any{int64(3), int64(1), int64(3)},
	"nested": []any{[]any{"a"}, []any{"b"}},
	"labels": map[string]any{"a": "1", "b": "1"},
}}

func TestFunctions(t *testing.T) {
	for _, test := range []struct {
		text string
		err  string // empty: it holds
	}{
		{text: `string(base64.decode(object.data.password)) == "secret"`},
		{text: `base64.encode(b"secret") == object.data.password`},
		{text: `md5("secret") == "5ebe2294ecd0e0f08eab7690d2a6ee69"`},
		{text: `sha1("secret") == "e5e9fa1ba31ecd1ae84f75caaa474f3a663f05f4"`},
		{text: `sha256("secret") == "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"`},
		{text: `sha256(base64.decode(object.data.password)) == sha256("secret")`},
		{text: `sha512(object.data.password) == sha512(b"c2VjcmV0") && size(sha512("")) == 128`},
		{text: `sha256(object.spec.count) == ""`, err: "no such overload: sha256(int)"},

		{text: `quantity(object.spec.storage).isGreaterThan(quantity("1000M"))`},
		{text: `quantity(object.spec.half).add(quantity(object.spec.half)) == quantity(object.spec.storage)`},
		{text: `quantity("50k").sub(20000).asApproximateFloat() == 30000.0`},
		{text: `quantity("200M").compareTo(quantity("0.2G")) == 0 && quantity("1").isLessThan(quantity("1100m"))`},
		{text: `quantity("50k").asInteger() == 50000 && quantity("50k").isInteger()`},
		{text: `!quantity("9999999999999999999999999999999999999G").isInteger()`},
		{text: `sign(quantity("-1")) == -1 && quantity("0").sign() == 0`},
		{text: `isQuantity(object.spec.cpu) && !isQuantity(object.spec.bad) && !isQuantity("200K")`},
		{text: `isQuantity("1e3") && !isQuantity("0.1e-200000000")`},
		{text: `quantity("1Gi") != quantity("1G") && quantity("1") != dyn("1")`},
		{text: `type(quantity("1")) == type(quantity("2Gi"))`},
		{text: `quantity(object.spec.bad) == quantity("1")`,
			err: `"1GiB" is not a quantity; examples: 500m, 2, 1.5Gi, 10G`},
		{text: `quantity("1.5").asInteger() == 1`, err: "cannot convert value to integer"},
		{text: `quantity(object.spec.cpu).add(object.spec.storage) == quantity("1")`,
			err: "no such overload: add(kubernetes.Quantity, string)"},

		{text: `object.list.distinct() == [3, 1] && object.list.sort() == [1, 3, 3]`},
		{text: `object.nested.flatten() == ["a", "b"]`},
		{text: `math.greatest(object.list) == 3`},
		{text: `sets.contains(object.list, [1])`},
		{text: `object.labels.all(k, v, v == "1") && object.labels.transformList(k, v, k + v).sort() == ["a1", "b1"]`},
		{text: `"%s-%d".format([object.spec.cpu, object.spec.count]) == "1500m-2"`},
		{text: `isIP("127.0.0.1") && !isIP("::ffff:1.2.3.4")`},
	} {
		t.Run(test.text, func(t *testing.T) {
			e, err := Object.Compile(test.text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Holds(secret)
			switch {
			case test.err == "" && (err != nil || !got):
				t.Errorf("got %v, %v", got, err)
			case test.err != "" && (err == nil || err.Error() != test.err):
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestMistakesInCallsHavePositions(t *testing.T) {
	for _, test := range []struct {
		text   string
		offset int
		err    string
	}{
		{`object.a == sha265("x")`, 18, "undeclared reference to 'sha265' (in container '')"},
		{`object.a == base64.decod("x")`, 24,
			"undeclared reference to 'base64.decod' (there are base64.decode, base64.encode)"},
		{"true &&\n quantity(object.a).isMoreThan(quantity('1'))", 38,
			"undeclared reference to 'isMoreThan' (in container '')"},
		{`quantity("1Gi").isGreaterThan(quantity("1GiB"))`, 39,
			`"1GiB" is not a quantity; examples: 500m, 2, 1.5Gi, 10G`},
		{`sha256(1) == ""`, 6, "found no matching overload for 'sha256' applied to '(int)'"},
	} {
		t.Run(test.text, func(t *testing.T) {
			var e *SyntaxError
			if _, err := Object.Compile(test.text); !errors.As(err, &e) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if e.Message != test.err || e.Offset != test.offset {
				t.Errorf("got %d %q, want %d %q", e.Offset, e.Message, test.offset, test.err)
			}
		})
	}
}

// A hash reads all of its text: an evaluation with many of long texts is too expensive, as one with many steps is.
func TestReadingLongTextsCosts(t *testing.T) {
	text := strings.Repeat("x", 1_000_000)
	for _, function := range []string{"sha256(object)", "md5(bytes(object))", "base64.encode(bytes(object))",
		"base64.decode(object)"} {
		program, err := Object.Program(function+" != "+function, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = program.Eval(map[string]any{"object": text})
		if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s: %v", function, err)
		}
	}
	cheap, err := Object.Program("sha256(object) != ''", 200)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := cheap.Eval(map[string]any{"object": text[:1000]}); err != nil {
		t.Errorf("a short text: %v", err)
	}
}

// notFunctions are what the environment calls functions, and what people do not call: operators, optional fields.
var notFunctions = regexp.MustCompile(`[^A-Za-z0-9_.]|^_|^@|^math\.@|^cel\.@`)

// The page about suites lists the functions that conditions have besides CEL's own.
func TestFunctionsAreDocumented(t *testing.T) {
	plain, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for name := range Object.env().Functions() {
		if !plain.HasFunction(name) && !notFunctions.MatchString(name) {
			names[name] = true
		}
	}
	for _, m := range Object.env().Macros() {
		switch name := m.Function(); name {
		case "greatest", "least": // the macro's receiver is the name math
			names["math."+name] = true
		default:
			if !notFunctions.MatchString(name) {
				names[name] = true
			}
		}
	}
	for _, m := range plain.Macros() {
		delete(names, m.Function())
	}
	const page, begin, end = "../../docs/suite.md", "<!-- begin: functions -->", "<!-- end: functions -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), begin)
	list, _, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no list of functions", page)
	}
	var documented []string
	for _, row := range strings.Split(list, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([A-Za-z0-9_.]+)`").FindAllStringSubmatch(cells[2], -1) {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(documented)
	documented = slices.Compact(documented) // some are there for texts and for lists
	if diff := cmp.Diff(slices.Sorted(maps.Keys(names)), documented); diff != "" {
		t.Errorf("%s (-environment +page):\n%s", page, diff)
	}
}

// Whatever a condition says, compiling and evaluating it ends without a panic.
func FuzzHolds(f *testing.F) {
	for _, text := range []string{
		`object.spec.storage == "1Gi"`, `quantity(object.spec.storage).add(quantity("1e3")).sub(2).asInteger() > 1`,
		`sha256(base64.decode(object.data.password)) == md5(b"\x00")`,
		`object.list.sort().distinct().slice(0, 1) == [1]`,
		`object.labels.transformMap(k, v, v + k).exists(k, v, v == "1a")`, `math.greatest(object.list) >= 3`,
		`"%s %d".format([object.list, 2]).split(" ").size() == 2`, `object.?spec.?none.orValue("") == ""`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "range") {
			return // lists.range makes as many numbers as the text asks for
		}
		program, err := Object.Program(text, 10_000)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(text) {
				t.Errorf("the error of %q has no position in it: %v", text, err)
			}
			return
		}
		_, _, _ = program.Eval(secret) // whether it holds does not matter
	})
}
