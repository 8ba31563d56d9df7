package remote

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

const rfcDir = "../../../testdata/originals/chaos-mesh/"

// rfc reads an example of Chaos Mesh's RFC 44.
func rfc(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(rfcDir + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The part of the RFC's chaos that is about the other cluster is that of a disruption, word for word.
func TestRemoteClusterOfTheRFCsChaos(t *testing.T) {
	var shown struct{ Spec map[string]any }
	if err := yaml.Unmarshal([]byte(rfc(t, "stresschaos.yaml")), &shown); err != nil {
		t.Fatal(err)
	}
	part, err := json.Marshal(map[string]any{
		"remoteCluster": shown.Spec["remoteCluster"], "duration": shown.Spec["duration"],
	})
	if err != nil {
		t.Fatal(err)
	}
	var spec chaos.DisruptionSpec
	if err := yaml.UnmarshalStrict(part, &spec); err != nil {
		t.Fatal(err)
	}
	want := chaos.RemoteTarget{Cluster: "cluster-xxxxxxx", Namespace: "remote-cluster-test"}
	if spec.RemoteCluster == nil || *spec.RemoteCluster != want || spec.Duration.Duration() != 30*time.Second {
		t.Errorf("%+v", spec)
	}
}

// The RFC's map of users is read as it stands, but for its asterisk, which YAML wants in quotes.
func TestUserMapOfTheRFC(t *testing.T) {
	_, text, ok := strings.Cut(rfc(t, "usermap.yaml"), "userMap:\n")
	if !ok {
		t.Fatal("no userMap")
	}
	if names, err := parseUserMap(text); err == nil {
		t.Errorf("an alias without a name is read: %+v", names)
	}
	names, err := parseUserMap(strings.Replace(text, "cluster: *", `cluster: "*"`, 1))
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{"yangkeao": "admin", "somebody": "somebody"} {
		if there, err := (identity{name: user}).in("cluster-xxxxxxx", names); err != nil || there.name != want {
			t.Errorf("%s is %+v there, want %s (%v)", user, there, want, err)
		}
	}
}
