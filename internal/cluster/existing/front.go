package existing

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/pki"
)

// front is a server on loopback through which all requests of a run go to the API server. A request with the front's
// own token is made as the user of the kubeconfig; all others as whoever their own token says, as those of a
// controller under test. The front refuses writes that the rules do not allow, and records what is created before the
// client knows it.
type front struct {
	c           *Cluster
	listener    net.Listener
	server      *http.Server
	served      chan error
	token       string
	ca          []byte
	certificate *tls.Certificate
	refuseAll   bool // every write: nothing may happen

	mu     sync.Mutex
	listed map[string]bool // cluster-scoped objects that the manifests list, see listKey
	files  map[string]bool // all objects that the manifests list
}

func newFront(c *Cluster) (*front, error) {
	authority, err := pki.New("trommel: in front of " + c.access.context)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	f := &front{
		c: c, token: rand.Text(), ca: authority.PEM(), certificate: &certificate, served: make(chan error, 1),
		listed: map[string]bool{}, files: map[string]bool{},
	}
	user, err := f.proxy(c.access.config)
	if err != nil {
		return nil, err
	}
	others, err := f.proxy(rest.AnonymousClientConfig(c.access.config))
	if err != nil {
		return nil, err
	}
	if f.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	f.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer "+f.token {
				r.Header.Del("Authorization")
				f.serve(w, r, byTrommel, user)
				return
			}
			f.serve(w, r, byController, others)
		}),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
	}
	go func() { f.served <- f.server.ServeTLS(f.listener, "", "") }()
	return f, nil
}

func (f *front) address() string { return f.listener.Addr().String() }

// config is access through the front, as the user of the kubeconfig.
func (f *front) config() *rest.Config {
	return &rest.Config{
		Host: "https://" + f.address(), BearerToken: f.token, UserAgent: "trommel", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.ca},
	}
}

func (f *front) close() error {
	err := f.server.Close()
	if served := <-f.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// proxy forwards requests with the access that a config gives.
func (f *front) proxy(config *rest.Config) (http.Handler, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	old := rest.CopyConfig(config) // a connection that is upgraded cannot be one of HTTP/2
	old.NextProtos = []string{"http/1.1"}
	upgrading, err := rest.TransportFor(old)
	if err != nil {
		return nil, err
	}
	to := func(via http.RoundTripper) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Transport: via, FlushInterval: -1,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host, Path: strings.TrimSuffix(target.Path, "/")})
				r.Out.Host = ""
			},
			ModifyResponse: f.created,
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				if r.Context().Err() == nil {
					f.c.log.Debug("forward a request", "method", r.Method, "path", r.URL.Path, "error", err)
				}
				// As if the API server could not be reached, which it cannot.
				status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error())
			},
			ErrorLog: slog.NewLogLogger(f.c.log.Handler(), slog.LevelDebug),
		}
	}
	plain, upgraded := to(transport), to(upgrading)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			upgraded.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	}), nil
}

// status sends an answer of an API server.
func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// write is a request that changes something.
type write struct {
	object             // Name is empty if the path has none
	verb        string // HTTP's method
	subresource string
	apply       bool // server-side apply, which may create
	newName     string
}

type writeKey struct{}

// parseWrite reads the path of a request for resources; ok is false for other paths.
func parseWrite(method, at string) (w write, ok bool) {
	w.verb = method
	if at != path.Clean(at) {
		return w, false // an API server could take it for another one than we do
	}
	parts := strings.Split(strings.Trim(at, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		w.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		w.Group, w.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return w, false
	}
	// namespaces/NAME/status is about the namespace itself.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		w.Namespace, parts = parts[1], parts[2:]
	}
	w.Resource = parts[0]
	if len(parts) > 1 {
		w.Name = parts[1]
	}
	if len(parts) > 2 {
		w.subresource = strings.Join(parts[2:], "/")
	}
	return w, true
}

func (f *front) serve(w http.ResponseWriter, r *http.Request, by string, to http.Handler) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		to.ServeHTTP(w, r)
		return
	}
	change, ok := parseWrite(r.Method, r.URL.Path)
	if !ok {
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("trommel does not let %s %s through", r.Method, r.URL.Path))
		return
	}
	change.By = by
	change.apply = r.Method == http.MethodPatch &&
		strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch")
	switch done, err := f.judge(w, r, &change); {
	case err != nil:
		f.c.log.Info("refuse a write", "by", by, "method", r.Method, "path", r.URL.Path, "reason", err)
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
		return
	case done:
		return
	}
	// What is created is read, so it must be readable. Clients decode what they are sent.
	if !strings.Contains(r.Header.Get("Accept"), "as=") {
		r.Header.Set("Accept", "application/json")
	}
	r.Header.Del("Accept-Encoding")
	to.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writeKey{}, &change)))
}

// judge decides about a write. Done: it has been answered. An error says why it is refused.
func (f *front) judge(w http.ResponseWriter, r *http.Request, change *write) (done bool, err error) {
	if slices.Equal(r.URL.Query()["dryRun"], []string{"All"}) {
		return false, nil
	}
	switch change.Group {
	case "authorization.k8s.io", "authentication.k8s.io": // questions
		return false, nil
	}
	if f.refuseAll {
		return false, errors.New("nothing is written in a dry run")
	}
	if err := f.where(change); err != nil {
		return false, err
	}
	if change.subresource != "" && change.Name != "" && change.verb == http.MethodPost &&
		change.subresource != "eviction" {
		return false, nil // exec, token, binding and so on: nothing that could be put back
	}
	if change.verb == http.MethodDelete && change.Name == "" && change.By == byTrommel {
		return false, fmt.Errorf("trommel deletes objects one by one: a collection of %s may contain others",
			change.Resource)
	}
	if change.verb == http.MethodPost && change.subresource == "" {
		if change.newName, err = nameIn(r); err != nil {
			return false, err
		}
		return false, f.intend(change)
	}
	if change.Name == "" || change.By == byController && !change.apply && change.verb != http.MethodPut {
		return false, nil
	}
	old, err := f.get(r.Context(), change.gvr(), change.Namespace, change.Name)
	switch {
	case apierrors.IsNotFound(err):
		if (change.apply || change.verb == http.MethodPut) && change.subresource == "" {
			return false, f.intend(change)
		}
		return false, nil // the API server says that it is not there
	case err != nil:
		return false, fmt.Errorf("look whether %s was there before the run: %w", &change.object, err)
	case change.By == byController:
		return false, nil
	case f.ofRun(change, old):
		return false, nil
	}
	if change.apply && change.subresource == "" && f.isListed(change) {
		return f.unchanged(w, r, change)
	}
	return false, fmt.Errorf("%s was there before the run, which did not make it: trommel does not change it",
		&change.object)
}

// where refuses writes in places that the suite does not allow.
func (f *front) where(change *write) error {
	what := "this run"
	if change.By == byController {
		what = "a controller under test"
	}
	switch {
	case change.Namespace != "":
		if slices.Contains(f.c.namespaces, change.Namespace) {
			return nil
		}
		return fmt.Errorf("%s may not write in namespace %s: the suite's namespaces are %s", what, change.Namespace,
			strings.Join(f.c.namespaces, ", "))
	case change.Group == "" && change.Resource == "namespaces":
		if change.Name == "" || slices.Contains(f.c.namespaces, change.Name) {
			return nil // a new one's name is looked at later
		}
		return fmt.Errorf("%s may not change namespace %s: the suite's namespaces are %s", what, change.Name,
			strings.Join(f.c.namespaces, ", "))
	case change.Name == "" && change.verb == http.MethodPost:
		return nil // its name is looked at later
	}
	return f.mayCluster(change, change.Name)
}

// mayCluster refuses a cluster-scoped object that the manifests do not list.
func (f *front) mayCluster(change *write, name string) error {
	if change.Group == "" && change.Resource == "namespaces" {
		if slices.Contains(f.c.namespaces, name) {
			return nil
		}
		return fmt.Errorf("namespace %s may not be created: the suite's namespaces are %s", name,
			strings.Join(f.c.namespaces, ", "))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listed[listKey(change.Group, change.Resource, "", name)] {
		return nil
	}
	what := object{Group: change.Group, Resource: change.Resource, Name: name}
	return fmt.Errorf("%s has no namespace, and the suite's manifests do not list it: on an existing cluster nobody "+
		"may write it in a run", &what)
}

func listKey(group, resource, namespace, name string) string {
	return group + "/" + resource + "/" + namespace + "/" + name
}

func (f *front) isListed(change *write) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files[listKey(change.Group, change.Resource, change.Namespace, change.Name)]
}

// ofRun reports whether an object is one of the run's: it made it, or it was not there before in a namespace of the
// run, as far as is known.
func (f *front) ofRun(change *write, old *metav1.PartialObjectMetadata) bool {
	if f.c.journal.madeUID(old.UID) {
		return true
	}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	b := f.c.snapshot
	return change.Namespace != "" && b != nil && !b.has(old.UID) &&
		!slices.Contains(b.Unlisted, unlistedKey(change.Namespace, change.Group, change.Resource))
}

// intend records that an object is about to be created.
func (f *front) intend(change *write) error {
	if change.newName == "" {
		change.newName = change.Name
	}
	if change.Namespace == "" {
		if err := f.mayCluster(change, change.newName); err != nil {
			return err
		}
	}
	if change.Group == "" && change.Resource == "events" || change.Group == "events.k8s.io" {
		return nil // they go by themselves
	}
	o := change.object
	o.Name = change.newName
	return f.c.journal.add(entry{Intent: &o})
}

// nameIn returns the name of the object in a request's body, which stays readable; empty: the API server makes one.
func nameIn(r *http.Request) (string, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	o, err := metadataOf(r.Header.Get("Content-Type"), body)
	if err != nil {
		return "", fmt.Errorf("read what is to be created: %w", err)
	}
	return o.Name, nil
}

// unchanged answers to an object of the manifests that was there before the run: it is used as it is. If applying it
// would change it, that is refused.
func (f *front) unchanged(w http.ResponseWriter, r *http.Request, change *write) (done bool, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false, err
	}
	q := r.URL.Query()
	q.Set("dryRun", "All")
	client, err := f.c.admin.Discovery().RESTClient().Patch(types.ApplyPatchType).AbsPath(r.URL.Path).Body(body).
		Param("dryRun", "All").Param("force", "true").Param("fieldManager", q.Get("fieldManager")).
		Do(r.Context()).Raw()
	forbidden := apierrors.IsForbidden(err)
	if err != nil && !forbidden {
		return false, fmt.Errorf("look whether %s would change: %w", &change.object, err)
	}
	now, err := f.c.admin.Discovery().RESTClient().Get().AbsPath(r.URL.Path).Do(r.Context()).Raw()
	if err != nil {
		return false, err
	}
	field := ""
	if forbidden { // to ask for that needs the right to write it
		field, err = lacks(now, body)
	} else {
		field, err = differs(now, client)
	}
	if err != nil {
		return false, err
	}
	if field != "" {
		return false, fmt.Errorf("%s was there before the run and differs from the manifests (%s): trommel does not "+
			"change what it did not make", &change.object, field)
	}
	f.c.progress(fmt.Sprintf("%s is there already, as the manifests want it; it stays as it is", &change.object))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(now)
	return true, nil
}

// created records what a request has created.
func (f *front) created(response *http.Response) error {
	change, ok := response.Request.Context().Value(writeKey{}).(*write)
	if !ok || response.StatusCode != http.StatusCreated || change.subresource != "" {
		return nil
	}
	if change.Group == "" && change.Resource == "events" || change.Group == "events.k8s.io" {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", fmt.Sprint(len(body)))
	m, err := metadataOf(response.Header.Get("Content-Type"), body)
	if err != nil || m.UID == "" {
		return nil // a question, of which nothing stays
	}
	o := change.object
	o.Name, o.UID = m.Name, m.UID
	if o.Resource == "statefulsets" {
		o.Claims = claimsOf(body)
	}
	return f.c.journal.add(entry{Made: &o})
}

// get reads the metadata of an object as the user.
func (f *front) get(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name string,
) (*metav1.PartialObjectMetadata, error) {
	if namespace == "" {
		return f.c.meta.Resource(gvr).Get(ctx, name, metav1.GetOptions{})
	}
	return f.c.meta.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}
