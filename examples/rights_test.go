package examples

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestDocumentedRights runs a plan on a cluster that is there, as somebody who has the Role of docs/security.md, and
// the rights for the objects of the manifests and the workload that the text there names. The operator's manifests are
// there already, as those of an operator that is installed.
func TestDocumentedRights(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("set TROMMEL_TEST_LONG")
	}
	trommel := buildTrommel(t)
	file := startCluster(t, trommel, "rights")
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	applyAll(t, config, filepath.Join(ports, "config", "operator.yaml"))
	all := []string{"get", "list", "watch", "create", "patch", "delete"}
	rules := append(documentedRole(t),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services", "configmaps"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}})
	limited := limitedUser(t, config, []string{"default", "port-system"}, rules, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings"},
			Verbs: []string{"get"}},
	})
	dir := withCluster(t, "cluster:\n  type: existing\n  kubeconfig: "+limited+
		"\n  context: limited\n  namespaces: [default, port-system]\n")
	for _, p := range plans {
		// One plan: the operator may keep what it writes to the ConfigMap that was there before.
		if p.example != ports || p.plan != "killed" {
			continue
		}
		t.Run(strings.Trim(p.plan+"/"+p.variant, "/"), func(t *testing.T) {
			record := filepath.Join(t.TempDir(), "record")
			args := []string{"-p", filepath.Join(dir, ports, "plans", p.plan+".yaml"), "--record", record}
			if p.variant != "" {
				args = append(args, "--variant", p.variant)
			}
			code, out := runTrommel(t, trommel, ".", 10*time.Minute, args...)
			if err := p.checkOn("existing", code, record); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// documentedRole reads the rules of the Role in docs/security.md.
func documentedRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "this Role is enough")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	block, _, found := strings.Cut(rest, "```")
	var role rbacv1.Role
	if err := yaml.Unmarshal([]byte(block), &role); err != nil || !found || len(role.Rules) == 0 {
		t.Fatalf("no rules in %q: %v", block, err)
	}
	return role.Rules
}

// applyAll creates the objects of a file, as an administrator.
func applyAll(t *testing.T, config *rest.Config, file string) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(typed.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		if _, err := resource.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// limitedUser gives a user rights in namespaces and for cluster-scoped objects, and returns a kubeconfig whose context
// is called limited.
func limitedUser(
	t *testing.T, config *rest.Config, namespaces []string, rules, clusterWide []rbacv1.PolicyRule,
) string {
	t.Helper()
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const user = "limited"
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	for _, ns := range namespaces {
		_, err := admin.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = admin.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects:   subjects,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: clusterWide,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return impersonating(t, config, user)
}

// impersonating writes a kubeconfig with which an administrator is another user.
func impersonating(t *testing.T, config *rest.Config, user string) string {
	t.Helper()
	as := clientcmdapi.NewConfig()
	as.Clusters[user] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
	}
	as.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificate: config.CertFile, ClientCertificateData: config.CertData, ClientKey: config.KeyFile,
		ClientKeyData: config.KeyData, Token: config.BearerToken, Impersonate: user,
	}
	as.Contexts[user] = &clientcmdapi.Context{Cluster: user, AuthInfo: user}
	file := filepath.Join(t.TempDir(), "limited")
	if err := clientcmd.WriteToFile(*as, file); err != nil {
		t.Fatal(err)
	}
	return file
}
