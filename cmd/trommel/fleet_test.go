package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/workers"
	"github.com/trommel-dev/trommel/internal/fleet"
)

// The manifests that are printed have the token of the campaign that is started later in the same directory.
func TestDryRunOnKubernetes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "Gate_1")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}], " +
		"contexts: [{name: c, context: {cluster: k, namespace: tests}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"test", "--on", "kubernetes", "--listen", "10.0.0.5:7443", "--image", "trommel:1",
		"--dry-run=client", "-o", "yaml",
		"--kubeconfig", kubeconfig, "--parallel", "3",
	}
	printed := func(more ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := execute(t.Context(), append(args, more...), output.Streams{Out: &out, Err: &errs})
		if code != exit.Pass {
			t.Fatalf("exit code %d: %s", code, errs.String())
		}
		return out.String()
	}
	first := printed("--dir", dir)
	if again := printed("--dir", dir); again != first {
		t.Error("it prints something else the second time")
	}
	token, err := fleet.Token(filepath.Join(dir, workers.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"token: " + token, "name: trommel-gate-1", "namespace: tests", "parallelism: 3", "- https://10.0.0.5:7443",
		"suspend: false",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	queued := printed("--dir", dir, "--queue", "batch", "-n", "others", "--advertise", "https://campaign.example:443")
	for _, want := range []string{
		"namespace: others", "suspend: true", "kueue.x-k8s.io/queue-name: batch", "- https://campaign.example:443",
	} {
		if !strings.Contains(queued, want) {
			t.Errorf("no %q in\n%s", want, queued)
		}
	}
}

func TestFlagsOfWorkers(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("no token"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"test --on moon", `--on "moon": the only value is kubernetes`, exit.Usage},
		{"test --on kubernetes --image a", "--on kubernetes needs --listen", exit.Usage},
		{"test --on kubernetes --listen a:1", "needs --listen, where workers find this campaign, and --push or --image",
			exit.Usage},
		{"test --on kubernetes --listen a:1 --image a --push b", "leave --image out", exit.Usage},
		{"test --on kubernetes --listen a:1 --push b/c", "--push: \"b/c\" must begin with a registry", exit.Usage},
		{"test --on kubernetes --listen a:1 --push localhost/c:1", "has a tag or a digest: leave it out", exit.Usage},
		{"test --on kubernetes --listen a:1 --push localhost/c --dry-run client",
			"--dry-run builds nothing: create the Job with --suspend", exit.Usage},
		{"test --listen 127.0.0.1:0 --push localhost/c", "--push is for --on kubernetes", exit.Usage},
		{"test --listen 127.0.0.1:0 --image a", "--image is for --on kubernetes", exit.Usage},
		{"test --on kubernetes --listen a:1 --image a --dry-run server", "the only value is client", exit.Usage},
		{"test --on kubernetes --listen a:1 --image a --dry-run client", "--dry-run needs --dir", exit.Usage},
		{"test --on kubernetes --listen :1 --image a --dry-run client --dir " + t.TempDir(),
			"pods cannot reach", exit.Usage},
		{"test --attach https://127.0.0.1:1", "--attach and --token-file need each other", exit.Usage},
		{"test --attach https://127.0.0.1:1 --token-file x --budget 1m", "leave --budget out", exit.Usage},
		{
			"test --attach https://127.0.0.1:1 --token-file " + token, "this is not the token of a campaign",
			exit.CannotRun,
		},
		{"worker --server https://127.0.0.1:1 --token-file " + token + " --files nowhere",
			"--files: nowhere is not a directory", exit.Usage},
		{"worker", "--server and --token-file are needed", exit.Usage},
		{
			"worker --server https://127.0.0.1:1 --token-file " + token, "this is not the token of a campaign",
			exit.Refused,
		},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), strings.Fields(tt.args), output.Streams{Out: &out, Err: &errs})
		if code != tt.code || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("trommel %s: exit code %d: %s", tt.args, code, errs.String())
		}
	}
}
