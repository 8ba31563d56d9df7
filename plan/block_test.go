package plan

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// sameAsYAML compares what readBlock makes of a text with what the YAML package does, and reports whether it read it.
func sameAsYAML(t *testing.T, data []byte) bool {
	got := readBlock(data)
	if got == nil {
		return false
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := decodeNode(dec, &doc); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	if err := decodeNode(dec, &second); err == nil {
		t.Fatalf("%q: there is a second document", data)
	}
	var strip func(n *yaml.Node)
	strip = func(n *yaml.Node) {
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		for _, c := range n.Content {
			strip(c)
		}
	}
	strip(&doc)
	if !reflect.DeepEqual(doc.Content[0], got) { // cmp would slow a fuzzer down
		t.Fatalf("%q (-yaml +got):\n%s", data, cmp.Diff(doc.Content[0], got))
	}
	return true
}

func TestReadBlock(t *testing.T) {
	for _, text := range []string{
		"a: b", "a: b\n", "a:\n  b: c\nd: e\n", "a:\n- b\n- c: d\n  e:\n  - f\n  g: h\ni: j\n", "a:\n  - b\n  -   c: d\n      e: f\n",
		"\n# x\n\na: b # c\n  # d\nc: 'd' # e\n", "  a: b\n  c: d", "a: b#c\nd: e  \n", "a: http://x\n",
		"a: 'b''c'\nd: \"e'f\"\ng: ''\nh: 'i \n   j'''\n", "a: 1\nb: 1.5\nc: true\nd: null\ne: 2024-01-01\nf: 0x1f\ng: 1_000\nh: y\ni: .5x\nnull: n\ntrue: No\n",
		"a: $present\nb: /c\n" + strings.Repeat("k", 127) + ": v\n",
	} {
		if read := sameAsYAML(t, []byte(text)); !read && !strings.Contains(text, ": .5x") {
			t.Errorf("%q was not read", text)
		}
	}
	for _, file := range files(t, sieveDir+"/actions/*.yaml", sieveDir+"/modes/*.yaml", "testdata/valid-minimal.canonical") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !sameAsYAML(t, data) {
			t.Errorf("%s was not read", file)
		}
	}
}

// Whatever is no mistake but unusual, and every mistake, is the YAML package's to read.
func TestReadBlockGivesUp(t *testing.T) {
	for _, text := range []string{
		"", "# a\n", "a", "- a\n", "a:\n", "a:\nb: c\n", "a: b\n c\n", "a: b\n c: d\n", "a: b: c\n", "a: b:\n", "a:\n  b: c\n d: e\n", "a:\n - b\n - c\n  - d\n",
		"a:\n - b\n c\n", "a: &b c\n", "a: *b\n", "a: !c d\n", "a: |\n  b\n", "a: >\n  b\n", "a: {}\n", "a: []\n", "a: -1\n", "a: - b\n", "- - a\n", "a:\n- - b\n",
		"a:\n-\n  b\n", "---\na: b\n", "a: b\n---\nc: d\n", "a: b\n...\n", "%YAML 1.1\n---\na: b\n", "a: 'b\n\n  c'\n", "a: 'b\nc'\n", "a: 'b' c\n", "a: 'b\n", "a: \"\\n\"\n",
		"a:\tb\n", "a: é\n", "a: b\r\n", "\ufeffa: b\n", "'a': b\n", "? a\n: b\n", "a : b\n", "<<: b\n", strings.Repeat("k", 128) + ": v\n", strings.Repeat("a:\n- ", 101) + "b",
		"a: 'b'#c\n", "a: @b\n", "a: %b\n", "a: `b\n", "1: a\n",
	} {
		if got := readBlock([]byte(text)); got != nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzReadBlock(f *testing.F) {
	for _, file := range append(files(f, "testdata/*.yaml", "testdata/*.canonical"), files(f, sieveDir+"/*/*_*.yaml", sieveDir+"/*/*-1.yaml")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < 3000 {
			f.Add(data)
		}
	}
	for _, text := range []string{"a: 'b''c'\nd: \"e\n  f\"\ng: ''\n", "a: # b\n# c\n- d # e\n-   f: g\n    # h\n    i:\n    - j\nk: 0o17\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsYAML(t, data) })
}
