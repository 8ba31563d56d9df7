package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("https://hook.example/secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := (&Flags{on: true, urlFile: file, reasons: []string{"Failed"}}).Options()
	if err != nil || o.URL != "https://hook.example/secret" || len(o.Reasons) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := (&Flags{}).Options(); o != nil || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	for want, n := range map[string]Flags{
		"say --notify, too": {urlFile: file}, "no such file": {on: true, templateFile: file + "x"},
	} {
		if _, err := n.Options(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
