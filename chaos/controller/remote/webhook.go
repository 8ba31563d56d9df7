package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/certificate"
)

// What the manifests call the webhook (parent/webhook.yaml).
const (
	webhookConfiguration = "remote.chaos.trommel.dev"
	webhookSecret        = "disruption-webhook"
	webhookPath          = "/remote"
)

// addWebhook adds the webhook to a manager, with its certificate.
func addWebhook(mgr ctrl.Manager, env *controller.Env) error {
	host, text, err := net.SplitHostPort(env.Config.Remote.Webhook)
	if err != nil {
		return fmt.Errorf("address of the webhook: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("address of the webhook: %q: want a port", env.Config.Remote.Webhook)
	}
	its := certificate.New(env, mgr.GetLogger(), webhookSecret, webhookConfiguration)
	server := webhook.NewServer(webhook.Options{Host: host, Port: int(port), TLSOpts: its.Options()})
	server.Register(webhookPath, &admission.Webhook{Handler: &reviewer{env, mgr.GetScheme()}})
	return errors.Join(mgr.Add(server), mgr.Add(its), mgr.AddReadyzCheck("webhook", its.Ready))
}

// reviewer refuses objects with remoteCluster whose user may not create the disruption in the other cluster. All
// replicas serve it, and only one has connections: it connects to the cluster for each request.
type reviewer struct {
	env    *controller.Env
	scheme *runtime.Scheme
}

// Handle is part of admission.Handler.
func (r *reviewer) Handle(ctx context.Context, req admission.Request) admission.Response {
	spec, err := specOf(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if spec.RemoteCluster == nil {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	refused, err := r.review(ctx, identity{name: req.UserInfo.Username, groups: req.UserInfo.Groups}, spec)
	var unanswered *unansweredError
	switch {
	case errors.As(err, &unanswered):
		response := admission.Errored(http.StatusServiceUnavailable, err)
		response.Result.Reason = metav1.StatusReasonServiceUnavailable
		return response
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case refused != "":
		return admission.Denied(refused)
	}
	return admission.Allowed("")
}

// specOf returns the disruption of an object that a request creates or changes.
func specOf(req admission.Request) (*chaos.DisruptionSpec, error) {
	var err error
	switch req.Kind.Kind {
	case "Disruption":
		o := &chaos.Disruption{}
		err = json.Unmarshal(req.Object.Raw, o)
		return &o.Spec, err
	case "DisruptionCron":
		o := &chaos.DisruptionCron{}
		err = json.Unmarshal(req.Object.Raw, o)
		return &o.Spec.Disruption, err
	case "DisruptionRollout":
		o := &chaos.DisruptionRollout{}
		err = json.Unmarshal(req.Object.Raw, o)
		return &o.Spec.Disruption, err
	}
	return nil, fmt.Errorf("%s cannot have remoteCluster", req.Kind.Kind)
}

// unansweredError is that of a cluster that did not answer.
type unansweredError struct {
	cluster string
	user    string
	err     error
}

func (e *unansweredError) Error() string {
	return fmt.Sprintf("cluster %s does not answer, so it is unknown whether user %s may create the disruption "+
		"there: %v", e.cluster, e.user, e.err)
}

func (e *unansweredError) Unwrap() error { return e.err }

// review asks the cluster of a disruption whether a user may create it there; refused says why not.
func (r *reviewer) review(
	ctx context.Context, who identity, spec *chaos.DisruptionSpec,
) (refused string, err error) {
	names, refused, err := userMap(ctx, r.env)
	if err != nil || refused != "" {
		return refused, err
	}
	name := spec.RemoteCluster.Cluster
	to, refused, err := r.access(ctx, name)
	if err != nil || refused != "" {
		return refused, err
	}
	life, end := context.WithCancel(ctx)
	hangUp := dial(life, to)
	defer func() { end(); hangUp() }()
	through, err := rest.HTTPClientFor(to)
	if err != nil {
		return "", err
	}
	there, err := client.New(to, client.Options{Scheme: r.scheme, HTTPClient: through, Mapper: knownTypes()})
	if err != nil {
		return "", err
	}
	refused, err = who.mayCreate(ctx, spec, name, there, names)
	switch {
	case apierrors.IsUnauthorized(err):
		return cannotAsk(name, "its API server does not accept the credentials of the kubeconfig"), nil
	case err != nil:
		return "", &unansweredError{name, who.name, err}
	}
	return refused, nil
}

func cannotAsk(cluster, why string) string {
	return fmt.Sprintf("cluster %s cannot be asked what users may: %s", cluster, why)
}

// access returns how a cluster is reached; refused says why it cannot be.
func (r *reviewer) access(ctx context.Context, name string) (to *rest.Config, refused string, err error) {
	cluster := &chaos.RemoteCluster{}
	if err := r.env.Reader.Get(ctx, client.ObjectKey{Name: name}, cluster); apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("there is no RemoteCluster %s", name), nil
	} else if err != nil {
		return nil, "", err
	}
	text, wrong, err := kubeConfig(ctx, r.env, cluster)
	if err != nil {
		return nil, "", err
	}
	if wrong == "" {
		if to, err = restConfig(text); err != nil {
			wrong = "kubeconfig: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	if wrong != "" {
		return nil, cannotAsk(name, wrong), nil
	}
	if wrap := r.env.Config.Remote.Wrap; wrap != nil {
		to.Wrap(wrap)
	}
	return to, "", nil
}
