// Package kind runs clusters with kind: one node, a container of Docker or Podman, with a real kubelet, containers and
// a network, and on it up to five API servers that have hooks.
//
// The node's image is Trommel's own, see NodeImage. Every program that Trommel must hold, kill or stop (the controllers
// under test and the API servers) runs behind a launcher, the first process of its container, which gets its orders
// from this process; see gate. A pod of a controller is changed while it is created, see admission; its requests to the
// API server go through a proxy in this process, so that they can be moved and cut.
//
// Time is real: the kubelet and the containers have no other. There are no simulated nodes, and no names of services in
// the cluster's DNS.
//
// Whatever way this process ends, a program that it has started removes the cluster.
package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/pki"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// Name is the name of this kind of cluster in suites.
const Name = "kind"

// maxAPIServers is the largest number of API servers: they share the node.
const maxAPIServers = 5

// firstPort is the port of the first API server; the others have the next ones.
const firstPort = 6443

func init() {
	cluster.Register(Name, cluster.Kind{
		ControlPlane: true,
		FindImages:   checkImages,
		Start: func(ctx context.Context, config cluster.Config) (cluster.Cluster, error) {
			c, err := Start(ctx, config)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	})
}

// Cluster is a cluster that this process has made with kind.
type Cluster struct {
	config    cluster.Config
	dir       *privatedir.Dir
	program   *program
	gate      *gate
	admission *admission
	processes *processes
	ca        *pki.Authority
	admin     *rest.Config // for any API server: without its address
	node      string       // the container
	address   string       // its IP
	gateway   string       // this machine's IP in the node's network
}

var _ interface {
	cluster.Cluster
	cluster.Instrumented
	cluster.Listener
	cluster.APIServerKiller
	cluster.ProcessRunner
	cluster.ImageLoader
} = (*Cluster)(nil)

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// withDefaults sets defaults, and refuses what clusters of this kind do not have.
func withDefaults(c cluster.Config) (cluster.Config, error) {
	if c.Name == "" {
		c.Name = "trommel-" + cluster.RandomHex(4)
	}
	if c.APIServers == 0 {
		c.APIServers = 3
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	refuse := func(given bool, why string) {
		if given {
			errs = append(errs, errors.New("a cluster of type kind "+why))
		}
	}
	if !nameRE.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("cluster name %q: must be up to 40 lower case letters, digits and dashes",
			c.Name))
	}
	refuse(c.APIServers < 1 || c.APIServers > maxAPIServers,
		fmt.Sprintf("has 1 to %d API servers, not %d", maxAPIServers, c.APIServers))
	refuse(c.Nodes != 0, "has one real node and no simulated ones: leave out nodes")
	refuse(len(c.Pods.Answers)+len(c.Pods.StandIns) > 0, "runs real containers: leave out answers")
	refuse(len(c.Pods.JobKinds) > 0, "runs real containers: leave out job kinds")
	refuse(c.Member.Beside != nil || c.Member.Name != "", "cannot be one of several in a run")
	refuse(c.Equip != nil, "cannot be equipped with Trommel's controllers")
	return c, errors.Join(errs...)
}

// startTimeout limits the start, beside the builds.
const startTimeout = 5 * time.Minute

// Prepare makes all that clusters with the given control plane need, as far as it is not there yet, and returns the
// name of the node's image. The first time takes minutes and needs the network; a start does not need it any more.
func Prepare(ctx context.Context, controlPlane string, progress func(string)) (image string, err error) {
	_, image, err = prepare(ctx, controlPlane, progress)
	return image, err
}

func prepare(ctx context.Context, controlPlane string, progress func(string)) (t tools, image string, err error) {
	if err := CheckEngine(ctx); err != nil {
		return t, "", err
	}
	if t, err = buildTools(ctx, progress); err != nil {
		return t, "", err
	}
	image, err = NodeImage(ctx, controlPlane, progress)
	return t, image, err
}

// Start makes a cluster and waits until all API servers are ready, the node is, and service accounts work. On error, or
// if ctx ends first, it leaves nothing behind but caches. The cluster outlives ctx; it ends with Close.
func Start(ctx context.Context, config cluster.Config) (*Cluster, error) {
	config, err := withDefaults(config)
	if err != nil {
		return nil, err
	}
	if err := CheckEngine(ctx); err != nil {
		return nil, err
	}
	if err := checkImages(ctx, config.Images); err != nil {
		return nil, err
	}
	tools, image, err := prepare(ctx, config.Binary, config.Progress)
	if err != nil {
		return nil, err
	}
	if err := checkDisk(ctx); err != nil {
		return nil, err
	}
	c := &Cluster{config: config}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not up after %s", startTimeout))
	defer cancel()
	if err := c.start(ctx, tools, image); err != nil {
		if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("start cluster %q: %w", config.Name, err), c.Close(closing))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, tools tools, image string) (err error) {
	if c.dir, err = privatedir.New(""); err != nil {
		return fmt.Errorf("create the cluster's directory: %w", err)
	}
	if c.ca, err = pki.New("trommel " + c.config.Name); err != nil {
		return err
	}
	logDir := c.config.LogDir
	if logDir == "" {
		logDir = c.file("logs")
	}
	c.processes = newProcesses(c.nodeName(), filepath.Join(logDir, "pods"))
	c.processes.first = apiServerName(0)
	c.processes.listen = func() (net.Listener, error) { return listen(c.gateway) }
	c.processes.dial = c.dialAPIServer

	if c.program, err = startProgram(tools.program, c.config.Progress); err != nil {
		return err
	}
	network, err := c.program.ask(ctx, request{Do: "network", Name: c.config.Name, Dir: c.dir.Path()})
	if err != nil {
		return err
	}
	c.gateway = network.Gateway
	certificate, err := issueCertificate(c.ca, c.gateway)
	if err != nil {
		return err
	}
	token := cluster.RandomHex(16)
	if c.gate, err = openGate(c.gateway, certificate, token, c.file("coordinator.sock"), c.processes); err != nil {
		return fmt.Errorf("listen in the node's network (is the engine on this machine?): %w", err)
	}
	c.admission = &admission{
		gate: c.gate, processes: c.processes, launcher: tools.launcher, dir: c.dir.Path(), present: c.config.Images,
		logger: c.config.Logger,
		load: func(ctx context.Context, archive string) error {
			_, err := c.program.ask(ctx, request{Do: "load", Name: c.config.Name, Archive: archive})
			return err
		},
	}
	if err := c.admission.open(c.gateway, certificate); err != nil {
		return err
	}
	if err := c.writeNodeFiles(tools.launcher); err != nil {
		return err
	}
	up, err := c.program.ask(ctx, request{
		Do: "up", Name: c.config.Name, Image: image, Config: c.kindConfig(), Kubeconfig: c.file("kubeconfig"),
	})
	if err != nil {
		return err
	}
	c.node, c.address = up.Node, up.Address
	if c.admin, err = clientcmd.BuildConfigFromFlags("", c.file("kubeconfig")); err != nil {
		return err
	}
	return c.complete(ctx)
}

// complete starts what kind does not know: further API servers, the service proxy, and our webhook.
func (c *Cluster) complete(ctx context.Context) error {
	c.config.Progress(fmt.Sprintf("starting %d API servers on the node", c.config.APIServers))
	if err := c.addAPIServers(ctx); err != nil {
		return err
	}
	if _, err := engine(ctx, nil, "exec", c.node, "systemctl", "start", "kube-proxy"); err != nil {
		return err
	}
	if len(c.config.Images) > 0 {
		c.config.Progress("putting images onto the node: " + strings.Join(c.config.Images, ", "))
		if err := c.loadImages(ctx, c.config.Images); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, name := range c.APIServers() {
		group.Go(func() error { return c.awaitReady(groupCtx, name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	client, err := c.client("")
	if err != nil {
		return err
	}
	_, err = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx,
		c.admission.configuration(c.ca.PEM()), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("declare the webhook for pods: %w", err)
	}
	if err := makeAlike(ctx, client); err != nil {
		return err
	}
	c.config.Progress("waiting for the node")
	group, groupCtx = errgroup.WithContext(ctx)
	group.Go(func() error { return awaitNode(groupCtx, client) })
	for _, name := range c.APIServers() {
		group.Go(func() error { return c.awaitWebhook(groupCtx, name) })
	}
	return group.Wait()
}

// makeAlike makes the cluster begin as those of other types do, so that plans and invariants mean the same on it.
func makeAlike(ctx context.Context, client *kubernetes.Clientset) error {
	_, err := client.StorageV1().StorageClasses().Patch(ctx, "standard", types.MergePatchType,
		[]byte(`{"allowVolumeExpansion": true}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("let the storage class grow claims: %w", err)
	}
	// With kubeadm's tokens further nodes could join.
	err = client.CoreV1().Secrets(metav1.NamespaceSystem).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return fmt.Errorf("delete kubeadm's tokens: %w", err)
	}
	return nil
}

// loadImages puts images of the local engine onto the node.
func (c *Cluster) loadImages(ctx context.Context, names []string) error {
	archive := c.file("images.tar")
	defer os.Remove(archive)
	if err := saveImages(ctx, archive, names...); err != nil {
		return err
	}
	_, err := c.program.ask(ctx, request{Do: "load", Name: c.config.Name, Archive: archive})
	return err
}

// LoadImage puts an image of the local engine onto the node.
func (c *Cluster) LoadImage(ctx context.Context, name string) error {
	names := []string{name}
	if err := checkImages(ctx, names); err != nil {
		return err
	}
	return c.loadImages(ctx, names)
}

func (c *Cluster) file(name string) string { return c.dir.File(name) }

func (c *Cluster) nodeName() string { return c.config.Name + "-control-plane" }

func apiServerName(i int) string { return "apiserver-" + strconv.Itoa(i+1) }

func isAPIServer(name string) bool { return strings.HasPrefix(name, "apiserver-") }

// Name identifies the cluster on this machine.
func (c *Cluster) Name() string { return c.config.Name }

// APIServers returns the names of the API servers, apiserver-1 first.
func (c *Cluster) APIServers() []string {
	names := make([]string, c.config.APIServers)
	for i := range names {
		names[i] = apiServerName(i)
	}
	return names
}

// InstrumentedAPIServers returns the names of the API servers that have hooks: all.
func (c *Cluster) InstrumentedAPIServers() []string { return c.APIServers() }

// Rendezvous returns the socket on which a coordinator listens, which the gate connects to, and the hooks' token.
func (c *Cluster) Rendezvous() (address, token string) {
	return "unix://" + c.gate.coordinator, c.gate.token
}

// Processes returns the programs in containers that Trommel observes.
func (c *Cluster) Processes() cluster.ProcessNode { return c.processes }

// RESTConfig returns a configuration for cluster-admin access through the named API server.
func (c *Cluster) RESTConfig(apiServer string) (*rest.Config, error) {
	address, err := c.apiServerAddress(apiServer)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.admin)
	config.Host = "https://" + address
	return config, nil
}

func (c *Cluster) apiServerAddress(name string) (string, error) {
	if name == "" {
		name = apiServerName(0)
	}
	i := slices.Index(c.APIServers(), name)
	if i < 0 {
		return "", fmt.Errorf("no API server %q (there are %s)", name, strings.Join(c.APIServers(), ", "))
	}
	return net.JoinHostPort(c.address, strconv.Itoa(firstPort+i)), nil
}

func (c *Cluster) dialAPIServer(ctx context.Context, name string) (net.Conn, error) {
	address, err := c.apiServerAddress(name)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func (c *Cluster) client(apiServer string) (*kubernetes.Clientset, error) {
	config, err := c.RESTConfig(apiServer)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// KillAPIServer sends SIGKILL and waits until the process has exited.
func (c *Cluster) KillAPIServer(ctx context.Context, name string) error {
	return c.processes.Kill(ctx, name)
}

// StartAPIServer starts a killed API server and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context, name string) error {
	if err := c.processes.Start(ctx, name); err != nil {
		return err
	}
	return c.awaitReady(ctx, name)
}

// pollInterval is that of checks where nothing can be watched.
const pollInterval = 100 * time.Millisecond

// poll is cluster.Poll with a bound for each attempt: what a container's network has lost is not answered.
func poll(ctx context.Context, f func(ctx context.Context) error) error {
	return cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return f(ctx)
	})
}

// awaitReady waits until an API server's /readyz succeeds.
func (c *Cluster) awaitReady(ctx context.Context, name string) error {
	config, err := c.RESTConfig(name)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	err = poll(ctx, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New("/readyz: " + response.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", name, err)
	}
	return nil
}

// awaitNode waits until the node is ready and pods can be created in namespace default.
func awaitNode(ctx context.Context, client *kubernetes.Clientset) error {
	err := poll(ctx, func(ctx context.Context) error {
		if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
			metav1.GetOptions{}); err != nil {
			return err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
					return errors.New(condition.Message)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for the node: %w", err)
	}
	return nil
}

// awaitWebhook waits until an API server asks our webhook.
func (c *Cluster) awaitWebhook(ctx context.Context, apiServer string) error {
	client, err := c.client(apiServer)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "trommel-probe", Annotations: map[string]string{
			cluster.AnnotationBinaryPrefix + "probe": "/probe",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
	}
	err = poll(ctx, func(ctx context.Context) error {
		got, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && got.Spec.Containers[0].Image == "probe" {
			err = errors.New("it does not ask the webhook for pods yet")
		}
		if apierrors.IsInvalid(err) {
			return nil // it has asked
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", apiServer, err)
	}
	return nil
}

// closeTimeout limits Close after a start that failed.
const closeTimeout = time.Minute

// Close removes the cluster: the node, its network and volumes, and what this process has for it. It can be called
// again.
func (c *Cluster) Close(ctx context.Context) error {
	var err error
	if c.program != nil {
		if err = c.program.close(ctx); err != nil {
			err = fmt.Errorf("%[1]w\n\twhat is left is removed with: %[2]s rm -f -v %[3]s; %[2]s network rm %[4]s",
				err, client(), c.nodeName(), c.config.Name)
		}
		c.program = nil
	}
	if c.admission != nil {
		c.admission.close()
	}
	if c.processes != nil {
		c.processes.close()
	}
	if c.gate != nil {
		c.gate.close()
	}
	if c.dir != nil {
		err = errors.Join(err, c.dir.Remove())
		c.dir = nil
	}
	return err
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // of strings and numbers only
	}
	return data
}
