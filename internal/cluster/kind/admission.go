package kind

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// admission changes pods while they are created: a container whose pod has the annotation for it runs the named local
// executable, from an image that this process puts into the node. So a Deployment stays as the user wrote it, whoever
// creates its pods.
type admission struct {
	gate      *gate
	processes *processes
	launcher  string   // the local executable
	dir       string   // for archives of images
	present   []string // images of the engine; a program whose container names one of them is put onto it
	load      func(ctx context.Context, archive string) error
	logger    *slog.Logger

	url    string
	server *http.Server
	served chan struct{}

	mu     sync.Mutex
	images map[source]*loading
}

// source is what an image is made of.
type source struct {
	binary string // the local executable
	base   string // the image of the engine that it is put onto; empty: none
}

// loading is an image on its way into the node.
type loading struct {
	done  chan struct{}
	image programIn
	err   error
}

// open starts the webhook's server at the IP.
func (a *admission) open(ip string, certificate tls.Certificate) error {
	listener, err := listen(ip)
	if err != nil {
		return err
	}
	// Only API servers know the path; the answer has the gate's token.
	secret := "/" + cluster.RandomHex(16)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+secret, a.handle)
	a.url = "https://" + listener.Addr().String() + secret
	a.images = map[source]*loading{}
	a.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	a.served = make(chan struct{})
	go func() {
		defer close(a.served)
		_ = a.server.ServeTLS(listener, "", "")
	}()
	return nil
}

func (a *admission) close() {
	if a.server != nil {
		_ = a.server.Close()
		<-a.served
	}
}

// webhookName is the configuration's name, and its webhook's.
const webhookName = "programs.trommel.dev"

// configuration makes the API servers ask this process about the pods that it changes, and about no others.
func (a *admission) configuration(ca []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
	effects := admissionregistrationv1.SideEffectClassNoneOnDryRun
	fail := admissionregistrationv1.Fail
	timeout := int32(30) // an image may have to be put into the node first
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: webhookName, SideEffects: &effects, FailurePolicy: &fail, TimeoutSeconds: &timeout,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &a.url, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
				},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "annotated",
				Expression: "has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('" +
					cluster.AnnotationBinaryPrefix + "'))",
			}},
		}},
	}
}

func (a *admission) handle(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	err := json.NewDecoder(io.LimitReader(r.Body, 8<<20)).Decode(&review)
	if err == nil && review.Request == nil {
		err = errors.New("no request")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	patch, err := a.patch(r.Context(), review.Request)
	if err != nil {
		a.logger.Warn("run a program in a container", "namespace", review.Request.Namespace, "error", err)
		response.Allowed = false
		response.Result = &metav1.Status{Message: err.Error(), Code: http.StatusUnprocessableEntity}
	} else {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &kind
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server reports the request as failed
}

// patch returns the JSON patch for a pod.
func (a *admission) patch(ctx context.Context, request *admissionv1.AdmissionRequest) ([]byte, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return nil, err
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var all []operation
	for list, containers := range map[string][]corev1.Container{
		"containers": pod.Spec.Containers, "initContainers": pod.Spec.InitContainers,
	} {
		for i := range containers {
			c := containers[i].DeepCopy()
			binary := pod.Annotations[cluster.AnnotationBinaryPrefix+c.Name]
			if binary == "" {
				continue
			}
			from := source{binary: binary}
			if slices.Contains(a.present, c.Image) {
				from.base = c.Image
			}
			image, err := a.image(ctx, from, request.DryRun == nil || !*request.DryRun)
			if err != nil {
				return nil, fmt.Errorf("container %q: %w", c.Name, err)
			}
			init := list == "initContainers" &&
				(c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
			if err := a.change(&pod, c, image, binary, init); err != nil {
				return nil, fmt.Errorf("container %q: %w", c.Name, err)
			}
			all = append(all, operation{"replace", fmt.Sprintf("/spec/%s/%d", list, i), c})
		}
	}
	slices.SortFunc(all, func(x, y operation) int { return strings.Compare(x.Path, y.Path) })
	return json.Marshal(all)
}

// change makes a container run its program behind a launcher. Init: it ends when it has done its work.
func (a *admission) change(pod *corev1.Pod, c *corev1.Container, image programIn, binary string, init bool) error {
	argv := image.argv(c, filepath.Base(binary))
	c.Image, c.ImagePullPolicy = image.name, corev1.PullNever
	c.Command = []string{launcherPath, "--", programPath}
	c.Args = argv
	// A machine for tests is small, and others run their controllers there with all replicas. The limits stay.
	requests := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name := range list {
			requests[name] = resource.Quantity{} // one that is not given would be the limit
		}
	}
	c.Resources.Requests = requests
	name := pod.Annotations[cluster.AnnotationController]
	who, err := json.Marshal(caller{
		Controller: cmp.Or(name, "pod of no controller"), Namespace: "$(TROMMEL_GATE_NAMESPACE)",
		Pod: "$(TROMMEL_GATE_POD)", Container: c.Name, Init: init,
	})
	if err != nil {
		return err
	}
	g := a.gate.config()
	set := func(name, value string) { setEnv(c, corev1.EnvVar{Name: name, Value: value}) }
	from := func(name, field string) {
		setEnv(c, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: field},
		}})
	}
	from("TROMMEL_GATE_NAMESPACE", "metadata.namespace")
	from("TROMMEL_GATE_POD", "metadata.name")
	set("TROMMEL_GATE_NAME", string(who)) // after those that it contains
	set("TROMMEL_GATE", g.Address)
	set("TROMMEL_GATE_TOKEN", g.Token)
	set("TROMMEL_GATE_FINGERPRINT", g.Fingerprint)
	if name != "" {
		host, port, err := a.processes.proxyFor(name, pod.Annotations[cluster.AnnotationAPIServer])
		if err != nil {
			return err
		}
		set("KUBERNETES_SERVICE_HOST", host)
		set("KUBERNETES_SERVICE_PORT", port)
	}
	if image.user == "" && mustNotBeRoot(pod, c) {
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		user := int64(unprivileged)
		c.SecurityContext.RunAsUser = &user
	}
	return nil
}

// setEnv sets a variable. It stands behind those before it, as those that it refers to must.
func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = append(slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }), v)
}

// mustNotBeRoot reports whether the container must not run as root, and the pod names no user: the image did.
func mustNotBeRoot(pod *corev1.Pod, c *corev1.Container) bool {
	var must, known bool
	if s := pod.Spec.SecurityContext; s != nil {
		must = s.RunAsNonRoot != nil && *s.RunAsNonRoot
		known = s.RunAsUser != nil
	}
	if s := c.SecurityContext; s != nil {
		if s.RunAsNonRoot != nil {
			must = *s.RunAsNonRoot
		}
		known = known || s.RunAsUser != nil
	}
	return must && !known
}

// image puts the image in which an executable runs into the node, once, and returns its name. Without load it only
// returns the name.
func (a *admission) image(ctx context.Context, from source, load bool) (programIn, error) {
	if !path.IsAbs(from.binary) {
		return programIn{}, fmt.Errorf("executable %q: must be an absolute path", from.binary)
	}
	if !load {
		return programIn{name: "trommel.dev/program:unknown"}, nil
	}
	a.mu.Lock()
	l := a.images[from]
	if l == nil || l.failed() {
		l = &loading{done: make(chan struct{})}
		a.images[from] = l
		// Others wait for the same image, and the API server asks again if this takes too long.
		go func() {
			l.image, l.err = a.putImage(context.WithoutCancel(ctx), from)
			close(l.done)
		}()
	}
	a.mu.Unlock()
	select {
	case <-l.done:
		return l.image, l.err
	case <-ctx.Done():
		return programIn{}, fmt.Errorf("put the image of %s into the node: %w", from.binary, ctx.Err())
	}
}

func (l *loading) failed() bool {
	select {
	case <-l.done:
		return l.err != nil
	default:
		return false
	}
}

func (a *admission) putImage(ctx context.Context, from source) (programIn, error) {
	f, err := openExecutable(from.binary)
	if err != nil {
		return programIn{}, err
	}
	_ = f.Close()
	archive, err := os.CreateTemp(a.dir, "image-*.tar")
	if err != nil {
		return programIn{}, err
	}
	defer func() { _ = os.Remove(archive.Name()) }()
	if err := archive.Close(); err != nil {
		return programIn{}, err
	}
	var made programIn
	if from.base != "" {
		made, err = putOnto(ctx, from.base, from.binary, a.launcher, archive.Name())
	} else {
		made, err = putAlone(ctx, from.binary, a.launcher, archive.Name())
	}
	if err != nil {
		return programIn{}, fmt.Errorf("make the image of %s: %w", from.binary, err)
	}
	if err := a.load(ctx, archive.Name()); err != nil {
		return programIn{}, fmt.Errorf("put the image of %s into the node: %w", from.binary, err)
	}
	return made, nil
}
