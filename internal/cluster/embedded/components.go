package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
	"github.com/trommel-dev/trommel/internal/pki"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// programs are those of the control plane, and how they are started.
type programs struct {
	config Config
	dir    *privatedir.Dir
	logDir string
	keeper *keeper.Keeper // nil: real time
	access *access
	// coordinator is where API servers look for it, with the token.
	coordinator, token string
}

// newComponent returns a component that has not been started; name is also its log's.
func (p *programs) newComponent(name, program string, args ...string) *component {
	return &component{
		name:    name,
		program: program,
		binary:  p.config.Binary,
		args:    args,
		env:     append(baseEnv(p.dir.Path()), p.keeper.Environ()...),
		logFile: filepath.Join(p.logDir, name+".log"),
		keeper:  p.keeper,
	}
}

// etcdSocket is the socket on which etcd listens, in the cluster's directory.
func etcdSocket(dir string) string { return filepath.Join(dir, "etcd.sock") }

// etcd listens only on a unix socket: it has no users, but other users cannot enter the socket's directory. As the only
// member it advertises nothing, but the flags require addresses.
func (p *programs) etcd() *component {
	const peer = "http://127.0.0.1:2380"
	// It is the only member, and elects itself after one heartbeat. Where waiting costs nothing, only the heartbeats
	// that come after that do.
	heartbeat, election, commit := 10, 100, "100ms"
	if p.keeper != nil {
		heartbeat, election, commit = 500, 5000, "1s"
	}
	etcd := p.newComponent("etcd", "etcd",
		"--name=etcd",
		"--data-dir="+p.dir.File("etcd"),
		"--listen-client-urls=unix://"+etcdSocket(p.dir.Path()),
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=unix://"+p.dir.File("peer.sock"),
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=etcd="+peer,
		fmt.Sprintf("--heartbeat-interval=%d", heartbeat),
		fmt.Sprintf("--election-timeout=%d", election),
		"--backend-batch-interval="+commit,
		"--unsafe-no-fsync",
		"--snapshot-count=100000",
		"--quota-backend-bytes=2147483648",
		"--log-level=warn",
	)
	if first := p.config.Member.FirstRevision; first > 0 {
		etcd.env = append(etcd.env, fmt.Sprintf("%s=%d", envFirstRevision, first))
	}
	return etcd
}

// logFlush is for components that log to stderr, which has no buffer to be flushed.
const logFlush = "--log-flush-frequency=1h"

// apiServer is one kube-apiserver with its address and credentials.
type apiServer struct {
	*component
	port       *port
	admin      pki.Pair
	kubeconfig string
	client     *http.Client // as admin

	lifecycle sync.Mutex // one Kill or Start at a time
}

func (p *programs) newAPIServer(name string) (*apiServer, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--etcd-servers=unix://" + etcdSocket(p.dir.Path()),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port.number),
		"--permit-port-sharing=true", // see port
		// All API servers have the same address, so they cannot register as endpoints of the Service kubernetes.
		"--endpoint-reconciler-type=none",
		"--advertise-address=127.0.0.1",
		"--tls-cert-file=" + p.dir.File("server.crt"),
		"--tls-private-key-file=" + p.dir.File("server.key"),
		"--client-ca-file=" + p.dir.File("ca.crt"),
		// As on any cluster: programs that take them from the ConfigMap extension-apiserver-authentication would try
		// again and again.
		"--requestheader-client-ca-file=" + p.dir.File("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.dir.File("sa.pub"),
		"--service-account-signing-key-file=" + p.dir.File("sa.key"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--egress-selector-config-file=" + p.dir.File(egressConfigFile),
		// Without this, an API server prefers a node's name and looks it up in the host's DNS.
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--profiling=false",
		// Only metrics need these numbers: each of some 60 resources would ask etcd once a minute.
		"--etcd-count-metric-poll-period=0",
		"--etcd-db-metric-poll-interval=0",
		logFlush,
	}
	args = append(args, featureGates(p.config.FeatureGates)...)
	args = append(args, p.config.APIServerArgs...)
	a := &apiServer{component: p.newComponent(name, "kube-apiserver", args...), port: port}
	// Starting allocates much memory and frees most of it. Half as many collections make the start a sixth faster and
	// cost 40 MB.
	a.env = append(a.env, "GOGC=200", envCoordinator+"="+p.coordinator, envToken+"="+p.token,
		envIdentity+"="+p.identity(name))
	if p.config.RemovedAPIs {
		a.env = append(a.env, envRemovedAPIs+"=true")
	}
	if a.admin, err = issueClient(p.access.ca, "trommel:admin", "system:masters"); err != nil {
		return nil, err
	}
	if a.client, err = rest.HTTPClientFor(p.access.restConfig(port.addr(), a.admin)); err != nil {
		return nil, err
	}
	return a, nil
}

// identity is the name by which the coordinator knows an API server.
func (p *programs) identity(apiServer string) string {
	if p.config.Member.Name == "" {
		return apiServer
	}
	return p.config.Member.Name + "/" + apiServer
}

// shutDown kills the process, even while StartAPIServer waits until it is ready.
func (a *apiServer) shutDown() {
	a.kill()
	a.lifecycle.Lock()
	defer a.lifecycle.Unlock()
	a.kill()
}

// readyTimeout is far more than an API server needs, even on a busy machine.
const readyTimeout = 2 * time.Minute

// awaitReady waits until the API server's /readyz succeeds.
func (a *apiServer) awaitReady(ctx context.Context) error {
	defer a.client.CloseIdleConnections()
	ctx, cancel := clock.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %s", readyTimeout))
	defer cancel()
	err := a.whileRunning(ctx, func(ctx context.Context) error {
		return cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
			ctx, cancel := clock.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return a.readyz(ctx)
		})
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", a.name, err)
	}
	return nil
}

func (a *apiServer) readyz(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.port.addr()+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("/readyz: " + resp.Status)
	}
	return nil
}

func (p *programs) controllerManager() *component {
	controllers := "--controllers=*"
	for _, name := range p.config.DisableControllers {
		controllers += ",-" + name
	}
	args := []string{
		"--kubeconfig=" + p.access.kubeconfigFile("kube-controller-manager"),
		"--secure-port=0",
		"--leader-elect=false",
		controllers,
		"--root-ca-file=" + p.dir.File("ca.crt"),
		"--service-account-private-key-file=" + p.dir.File("sa.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--node-monitor-grace-period=8760h", // simulated nodes have no heartbeat
		// A claim whose binding failed with a conflict is retried only at the next resync.
		"--pvclaimbinder-sync-period=1s",
		"--profiling=false",
		logFlush,
	}
	args = append(args, featureGates(p.config.FeatureGates)...)
	args = append(args, p.config.ControllerManagerArgs...)
	return p.newComponent("kube-controller-manager", "kube-controller-manager", args...)
}

func (p *programs) scheduler() *component {
	args := []string{
		"--kubeconfig=" + p.access.kubeconfigFile("kube-scheduler"),
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--profiling=false",
		logFlush,
	}
	args = append(args, featureGates(p.config.FeatureGates)...)
	args = append(args, p.config.SchedulerArgs...)
	return p.newComponent("kube-scheduler", "kube-scheduler", args...)
}

func (p *programs) kwok() *component {
	return p.newComponent("kwok", "kwok",
		"--kubeconfig="+p.access.kubeconfigFile("kwok"),
		"--config="+p.dir.File("kwok.yaml"),
		"--manage-nodes-with-annotation-selector="+snapshot.SimulatedAnnotation+"="+snapshot.SimulatedValue,
		// Leases are for several KWOK instances: after a restart KWOK would wait until the old instance's leases
		// expire.
		"--node-lease-duration-seconds=0",
		"--cidr="+strings.Replace(podCIDR, ".0.0/", ".0.1/", 1),
	)
}
