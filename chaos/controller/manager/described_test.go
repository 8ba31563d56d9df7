package manager

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// What a controller does can be said in a hundred words; otherwise it is more than one.
func TestControllersAreDescribedInAHundredWords(t *testing.T) {
	for _, c := range Controllers {
		files, err := filepath.Glob(filepath.Join("..", c.Name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		described := false
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc == nil {
				continue
			}
			described = true
			if words := len(strings.Fields(file.Doc.Text())); words > 100 {
				t.Errorf("%s describes the controller in %d words", name, words)
			}
		}
		if !described {
			t.Errorf("package %s is not described", c.Name)
		}
	}
}
