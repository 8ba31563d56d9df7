package points

import (
	"os"
	"path/filepath"
	"testing"
)

// The error says that the receiver of an annotated call is written with its star.
func TestReceiverOfAnAnnotatedCall(t *testing.T) {
	dir := t.TempDir()
	text := `package p

type R struct{}
type S struct{}
type G[T any] struct{}

func (r *R) Foo()    {}
func (s S) Foo()     {}
func Bar()           {}
func (g *G[T]) Baz() {}
`
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ receiver, function, want string }{
		{"*R", "Foo", ""},
		{"S", "Foo", ""},
		{"", "Bar", ""},
		{"*G", "Baz", ""},
		{"R", "Foo",
			`annotated call "x": package example.com/p has no function (R).Foo; ` +
				`Foo has another receiver there: write receiver: "*R" or receiver: "S"`},
		{"G", "Baz",
			`annotated call "x": package example.com/p has no function (G).Baz; ` +
				`Baz has another receiver there: write receiver: "*G"`},
		{"", "Baz",
			`annotated call "x": package example.com/p has no function Baz; ` +
				`Baz has another receiver there: write receiver: "*G"`},
		{"*R", "Bar",
			`annotated call "x": package example.com/p has no function (*R).Bar; ` +
				`Bar has another receiver there: write no receiver`},
		{"*R", "Fuu", `annotated call "x": package example.com/p has no function (*R).Fuu`},
	} {
		_, _, err := annotateIn(map[string]*source{}, dir, []string{"p.go"}, AnnotatedCall{
			Name: "x", Package: "example.com/p", Receiver: test.receiver, Function: test.function,
		})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("receiver %q, function %s:\ngot  %s\nwant %s", test.receiver, test.function, got, test.want)
		}
	}
}
