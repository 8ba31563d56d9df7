// Package existing is a cluster that exists already and belongs to others. A kubeconfig leads to it.
//
// The controllers under test run as processes of this machine, with the tokens of their service accounts; a Deployment
// of the cluster that runs them is scaled to 0 meanwhile. All requests, those of the run and those of the controllers,
// go through a [front] in this process: it refuses writes where the suite does not allow them, and records what they
// create. Between runs, what was created is deleted, and what was replaced is put back. The record is on disk, so that
// this also happens after the death of this process.
package existing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/privatedir"
	"github.com/trommel-dev/trommel/internal/processnode"
)

// Name is the name of the kind in suites.
const Name = "existing"

// server is the name by which plans know the cluster's API servers, however many there are behind its address.
const server = "apiserver-1"

func init() {
	cluster.Register(Name, cluster.Kind{
		Check: func(config cluster.JoinConfig) error {
			_, err := choose(config)
			return err
		},
		Join: func(ctx context.Context, config cluster.JoinConfig) (cluster.Cluster, error) {
			c, err := Join(ctx, config)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	})
}

// Cluster is the use of a cluster. It implements cluster.Cluster and cluster.Shared.
type Cluster struct {
	access     *access
	namespaces []string // in which a run may write
	admin      kubernetes.Interface
	meta       metadata.Interface
	front      *front
	node       *processnode.Node
	dir        *privatedir.Dir // of the processes' files
	journal    *journal
	progress   func(string)
	log        *slog.Logger

	mu       sync.Mutex
	snapshot *snapshot
}

var (
	_ cluster.Cluster       = (*Cluster)(nil)
	_ cluster.Shared        = (*Cluster)(nil)
	_ cluster.ProcessRunner = (*Cluster)(nil)
	_ cluster.Deployer      = (*Cluster)(nil)
	_ cluster.Guarded       = (*Cluster)(nil)
)

// answerTimeout is how long the API server may take for its first answer.
const answerTimeout = 15 * time.Second

// Join begins to use a cluster: it looks whether the cluster answers, and whether this user may do what each run needs.
// It writes nothing. A mistake of the user is a *cluster.Refusal.
func Join(ctx context.Context, config cluster.JoinConfig) (_ *Cluster, err error) {
	a, err := choose(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		access: a, namespaces: slices.Clone(config.Namespaces), progress: config.Progress, log: config.Logger,
	}
	if c.progress == nil {
		c.progress = func(string) {}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.admin, err = kubernetes.NewForConfig(a.config); err != nil {
		return nil, err
	}
	if c.meta, err = metadata.NewForConfig(a.config); err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := c.answers(asking); err != nil {
		return nil, err
	}
	if err := c.checkNamespaces(asking); err != nil {
		return nil, err
	}
	if err := c.may(asking, c.everyRun(asking)); err != nil {
		return nil, err
	}
	if c.journal, err = openJournal(c.id()); err != nil {
		return nil, err
	}
	if c.front, err = newFront(c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
		}
	}()
	if config.DryRun {
		c.front.refuseAll = true
		return c, nil
	}
	if c.dir, err = privatedir.New(""); err != nil {
		return nil, fmt.Errorf("create a directory for the controllers: %w", err)
	}
	c.node, err = processnode.Start(ctx, processnode.Config{
		Unregistered: true, RESTConfig: c.front.config(), APIServers: map[string]string{server: c.front.address()},
		First: server, CA: c.front.ca, Certificate: c.front.certificate,
		Dir: c.dir.Path(), LogDir: c.dir.File("logs"), Logger: c.log,
	})
	return c, err
}

// id names the use of the cluster in these namespaces on this machine.
func (c *Cluster) id() string { return idOf(c.access.config.Host, c.namespaces) }

func idOf(host string, namespaces []string) string {
	sorted := slices.Sorted(slices.Values(namespaces))
	sum := sha256.Sum256([]byte(host + "\x00" + strings.Join(sorted, ",")))
	return hex.EncodeToString(sum[:6])
}

// answers asks the API server for its version.
func (c *Cluster) answers(ctx context.Context) error {
	body, err := c.admin.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	switch {
	case err == nil && len(body) > 0:
		return nil
	case apierrors.IsUnauthorized(err):
		return refuse("the API server of %s does not accept the credentials of the kubeconfig: %v", c.access, err)
	case err == nil:
		err = errors.New("it sent nothing")
	}
	return fmt.Errorf("the API server of %s does not answer: %w", c.access, err)
}

// checkNamespaces refuses namespaces that are being deleted.
func (c *Cluster) checkNamespaces(ctx context.Context) error {
	for _, name := range c.namespaces {
		ns, err := c.admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		case err != nil:
			return fmt.Errorf("read namespace %s of %s: %w", name, c.access, err)
		case ns.Status.Phase == corev1.NamespaceTerminating:
			return fmt.Errorf("namespace %s of %s is being deleted (Terminating); wait until it is gone", name,
				c.access)
		}
	}
	return nil
}

// Name identifies the cluster.
func (c *Cluster) Name() string { return c.access.context }

// APIServers returns the only name by which plans know the API servers.
func (c *Cluster) APIServers() []string { return []string{server} }

// RESTConfig returns the user's access, as far as the run may use it: through the front.
func (c *Cluster) RESTConfig(apiServer string) (*rest.Config, error) {
	if apiServer != "" && apiServer != server {
		return nil, fmt.Errorf("no API server %q (there is %s)", apiServer, server)
	}
	return c.front.config(), nil
}

// Processes returns what runs the controllers under test.
func (c *Cluster) Processes() cluster.ProcessNode { return c.node }

// Close ends the processes. It leaves the cluster as it is.
func (c *Cluster) Close(ctx context.Context) (err error) {
	if c.node != nil {
		err = c.node.Close(ctx)
	}
	if c.front != nil {
		err = errors.Join(err, c.front.close())
	}
	if c.dir != nil {
		err = errors.Join(err, c.dir.Remove())
	}
	return err
}

func refuse(format string, args ...any) error {
	return &cluster.Refusal{Err: fmt.Errorf(format, args...)}
}
