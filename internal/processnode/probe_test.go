package processnode

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/internal/processnode/address"
)

// An HTTP probe sends the request that a kubelet sends.
func TestProbeHTTP(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Host + r.RequestURI + " " + r.UserAgent()
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &container{
		pod:  &pod{address: address.Address{IP: netip.MustParseAddr(u.Hostname())}},
		spec: &corev1.Container{},
	}
	header := func(name, value string) []corev1.HTTPHeader { return []corev1.HTTPHeader{{Name: name, Value: value}} }
	for _, test := range []struct {
		name, path string
		headers    []corev1.HTTPHeader
		want, err  string
	}{
		{name: "usual", path: "/readyz", want: u.Host + "/readyz kube-probe/trommel"},
		{name: "without a slash", path: "readyz", want: u.Host + "/readyz kube-probe/trommel"},
		{name: "with a query", path: "readyz?verbose", want: u.Host + "/readyz?verbose kube-probe/trommel"},
		{name: "no path", want: u.Host + "/ kube-probe/trommel", err: "status 503 Service Unavailable"},
		{name: "no URL", path: "/a%zz", want: u.Host + "/a%25zz kube-probe/trommel",
			err: "status 503 Service Unavailable"},
		{name: "a host", path: "/readyz", headers: header("host", "db"), want: "db/readyz kube-probe/trommel"},
		{name: "a header", path: "/readyz", headers: header("User-Agent", "db"), want: u.Host + "/readyz db"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.probeHTTP(t.Context(), &corev1.HTTPGetAction{
				Path: test.path, Port: intstr.FromString(u.Port()), HTTPHeaders: test.headers,
			})
			failed := ""
			if err != nil {
				failed = err.Error()
			}
			if got != test.want || failed != test.err {
				t.Errorf("got %q, error %q; want %q, %q", got, failed, test.want, test.err)
			}
		})
	}
}
