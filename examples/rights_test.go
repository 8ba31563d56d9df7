package examples

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
)

// TestDocumentedRights runs a plan on an existing cluster as a user who has the Role of docs/security.md, and the
// rights for the objects of the manifests and the workload that the text there names. The operator's manifests are
// there already, as those of an operator that is installed.
func TestDocumentedRights(t *testing.T) {
	needLong(t, true)
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
	limitUser(t, config, []string{"default", "port-system"}, rules, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings"},
			Verbs: []string{"get"}},
	})
	dir := withCluster(t, existing("rights", impersonating(t, file, limited), "default, port-system"))
	// One plan: the operator may keep what it writes to the ConfigMap that was there before.
	out, err := examplePlan{example: ports, plan: "killed", want: pass}.runOn(t, trommel, dir, "existing")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// limited is the name of a user with few rights.
const limited = "limited"

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

// limitUser gives the limited user rights in namespaces and for cluster-scoped objects.
func limitUser(t *testing.T, config *rest.Config, namespaces []string, rules, clusterWide []rbacv1.PolicyRule) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: limited}}
	for _, ns := range namespaces {
		_, err := admin.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: limited}, Rules: rules,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = admin.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: limited},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: limited},
			Subjects:   subjects,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: limited}, Rules: clusterWide,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: limited}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: limited},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// impersonating copies an administrator's kubeconfig, with which he is another user.
func impersonating(t *testing.T, kubeconfig, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, admin := range config.AuthInfos {
		admin.Impersonate = user
	}
	file := filepath.Join(t.TempDir(), user)
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
