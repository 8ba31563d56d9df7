package run_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trommel-dev/trommel/instrumentation"
)

// BenchmarkEnvtest starts controller-runtime's envtest, writes and reads an object, and stops it, to compare with
// BenchmarkPlan. Both use the same executable. envtest starts etcd and one API server, and no controller.
func BenchmarkEnvtest(b *testing.B) {
	if testing.Short() {
		b.Skip("starts a control plane")
	}
	ctx := context.Background()
	controlPlane, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{})
	if err != nil {
		b.Fatal(err)
	}
	assets := b.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(controlPlane.Binary, filepath.Join(assets, name)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		environment := &envtest.Environment{BinaryAssetsDirectory: assets}
		config, err := environment.Start()
		if err != nil {
			b.Fatal(err)
		}
		c, err := client.New(config, client.Options{})
		if err != nil {
			b.Fatal(err)
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first", Namespace: "default"}}
		if err := c.Create(ctx, object); err != nil {
			b.Fatal(err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			b.Fatal(err)
		}
		if err := environment.Stop(); err != nil {
			b.Fatal(err)
		}
	}
}
