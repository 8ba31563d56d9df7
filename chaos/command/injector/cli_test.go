package injector

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// The node is kept clean: remains that appear later are removed too, and those that cannot be removed are reported.
func TestKeepClean(t *testing.T) {
	journal, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
	leave := func(name, text string) string {
		file := filepath.Join(journal, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	until := func(file string, exists bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			_, err := os.Stat(file)
			if exists && err == nil || !exists && errors.Is(err, fs.ErrNotExist) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	first := leave("a.b.dns.lock", "")
	c := NewCommand()
	c.SetArgs([]string{"clean", "--journal", journal, "--every", "1ms", "--ready-file", ready})
	c.SetErr(io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx) }()
	until(first, false)
	until(ready, true)
	damaged := leave("c.d.dns.json", "damaged")
	until(ready, false)
	second := leave("e.f.dns.lock", "")
	until(second, false)
	if err := os.Remove(damaged); err != nil {
		t.Fatal(err)
	}
	until(ready, true)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The manifest that cleans all nodes is one that the API server and this program understand.
func TestManifestCleans(t *testing.T) {
	text, err := os.ReadFile("../../config/clean/clean.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	for _, args := range [][]string{c.Args, c.ReadinessProbe.Exec.Command[1:]} {
		found, rest, err := NewCommand().Find(args)
		if err == nil {
			err = found.ParseFlags(rest)
		}
		if err != nil || !found.Runnable() {
			t.Errorf("%q: %v", args, err)
		}
	}
}
