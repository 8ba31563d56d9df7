package scaffold

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindDeployed(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		want             map[string]int
	}{
		{
			"kubebuilder's Makefile", "Makefile",
			"install: manifests kustomize\n\t$(KUSTOMIZE) build config/crd | $(KUBECTL) apply -f -\n" +
				"deploy: manifests kustomize ## Deploy.\n" +
				"\tcd config/manager && $(KUSTOMIZE) edit set image x=${IMG}\n" +
				"\t\"$(KUSTOMIZE)\" build config/default | \"$(KUBECTL)\" apply -f -\n" +
				"undeploy:\n\t$(KUSTOMIZE) build config/default | $(KUBECTL) delete -f -\n",
			map[string]int{"config/crd": byMakefile, "config/default": byDeploy},
		},
		{
			"files, a variable, and one that is not there", "Makefile",
			"DIR := deploy\nrun:\n\tkubectl apply -f deploy/rbac.yaml -f deploy/operator.yaml\n" +
				"\tkubectl create -n ns -f ./deploy/crd.yaml\n\tkubectl apply -f $(DIR)/x.yaml -f deploy/none.yaml\n" +
				"\tkubectl delete -f deploy/secrets.yaml\n",
			map[string]int{"deploy/rbac.yaml": byMakefile, "deploy/operator.yaml": byMakefile,
				"deploy/crd.yaml": byMakefile},
		},
		{
			"URLs in a README", "README.md",
			"```\nkustomize build github.com/acme/op/config/default?ref=v1.2.4 | kubectl apply -f -\n" +
				"kubectl apply --server-side -f \\\n" +
				"  https://raw.githubusercontent.com/acme/op/v1/deploy/operator.yaml\n" +
				"```\nOr `kubectl apply -k config/crd`.\n",
			map[string]int{"config/default": byDocs, "deploy/operator.yaml": byDocs, "config/crd": byDocs},
		},
		{
			"ko", "DEVELOPMENT.md", "```\nko apply -R -f deploy/\n```\nSo that gecko create -f config shows nothing.\n",
			map[string]int{"deploy": byDocs},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, d := range []string{"config/crd", "config/default", "deploy"} {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []string{"deploy/rbac.yaml", "deploy/operator.yaml", "deploy/crd.yaml",
				"deploy/secrets.yaml", tt.file} {
				if err := os.WriteFile(filepath.Join(dir, f), []byte(tt.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, findDeployed(dir)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCountOwned(t *testing.T) {
	owns := map[string]int{}
	countOwned([]byte("return ctrl.NewControllerManagedBy(mgr).\n"+
		"\tFor(&v1.Backup{}).\n\tOwns(&batchv1.Job{}).Complete(r)\n"), owns)
	countOwned([]byte("b := builder.For(&Cluster{}, builder.WithPredicates(p)).\n\tOwns(&corev1.Service{}).\n"+
		"\tOwns(\n\t\t&appsv1.StatefulSet{})\nb.Owns(&corev1.Secret{})\n"), owns)
	if diff := cmp.Diff(map[string]int{"Backup": 1, "Cluster": 3}, owns); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
