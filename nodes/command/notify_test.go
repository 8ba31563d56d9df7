package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNotifications(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("https://hook.example/secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := (&notifications{on: true, urlFile: file, reasons: []string{"Failed"}}).options()
	if err != nil || o.URL != "https://hook.example/secret" || len(o.Reasons) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := (&notifications{}).options(); o != nil || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	for want, n := range map[string]notifications{
		"say --notify, too": {urlFile: file}, "no such file": {on: true, templateFile: file + "x"},
	} {
		if _, err := n.options(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
