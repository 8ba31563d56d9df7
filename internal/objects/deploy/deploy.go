// Package deploy creates the objects that run controllers under test: the user's own Deployment, or a generated one,
// runs on the process node, with its image mapped to the built binary. What differs between runs is in no object: the
// process node gives it to the processes.
package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// Programs are the executables that replace images, and files of theirs: absolute paths.
type Programs struct {
	Controller string            // that of the controller's image
	Others     map[string]string // by image
	// Files are what the controller's image has: by the path in it, the absolute path on this machine.
	Files map[string]string
}

// Controller finds the controller's Deployment among the manifests, or generates one with its service account and role
// binding, and makes it run its program on the process node. A component of the control plane gets a pod, as it would
// on a real control plane, because the controllers that make a Deployment's pods may be those under test. It returns
// the objects to apply for the controller, the Deployment or pod last, and the manifests without that Deployment. The
// manifests are not changed.
func Controller(
	c *plan.Controller, manifests []*unstructured.Unstructured, programs Programs,
) (own, rest []*unstructured.Unstructured, err error) {
	index, err := find(c, manifests)
	if err != nil {
		return nil, nil, err
	}
	var d appsv1.Deployment
	var others []runtime.Object
	if index >= 0 {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifests[index].Object, &d); err != nil {
			return nil, nil, fmt.Errorf("controller %q: Deployment %s: %w", c.Name, name(manifests[index]), err)
		}
		rest = slices.Delete(slices.Clone(manifests), index, index+1)
	} else {
		d, others = generate(c)
		rest = manifests
	}
	if err := instrument(c, &d, programs); err != nil {
		return nil, nil, fmt.Errorf("controller %q: %w", c.Name, err)
	}
	var workload runtime.Object = &d
	if c.Build != nil && c.Build.ControlPlane != "" && index < 0 {
		workload = pod(&d)
	}
	for _, o := range append(others, workload) {
		u, err := toUnstructured(o)
		if err != nil {
			return nil, nil, fmt.Errorf("controller %q: %w", c.Name, err)
		}
		own = append(own, u)
	}
	return own, rest, nil
}

func toUnstructured(o runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	// Otherwise server-side apply would take ownership of fields that the user did not set.
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "creationTimestamp")
	return u, nil
}

func name(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return "default/" + u.GetName()
	}
	return u.GetNamespace() + "/" + u.GetName()
}

func isDeployment(u *unstructured.Unstructured) bool {
	return u.GetKind() == "Deployment" && strings.HasPrefix(u.GetAPIVersion(), "apps/")
}

// find returns the index of the controller's Deployment: the one that the suite names, else the only one with the
// controller's image, else -1.
func find(c *plan.Controller, manifests []*unstructured.Unstructured) (int, error) {
	if c.Deployment.Name != "" {
		var seen []string
		for i, u := range manifests {
			if !isDeployment(u) {
				continue
			}
			if name(u) == c.Deployment.Namespace+"/"+c.Deployment.Name {
				return i, nil
			}
			seen = append(seen, name(u))
		}
		return 0, fmt.Errorf("controller %q: no Deployment %s/%s in the suite's manifests (Deployments there: %s)",
			c.Name, c.Deployment.Namespace, c.Deployment.Name, list(seen))
	}
	if c.Image == "" {
		return -1, nil
	}
	var hits []int
	var names []string
	for i, u := range manifests {
		if isDeployment(u) && containerWithImage(u, c.Image) {
			hits = append(hits, i)
			names = append(names, name(u))
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return 0, fmt.Errorf("controller %q: no Deployment in the suite's manifests has a container with image %q",
			c.Name,
			c.Image)
	}
	return 0, fmt.Errorf("controller %q: %d Deployments have a container with image %q (%s): name one with "+
		"`deployment:`",
		c.Name, len(hits), c.Image, list(names))
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func containerWithImage(u *unstructured.Unstructured, image string) bool {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		if m, ok := c.(map[string]any); ok && m["image"] == image {
			return true
		}
	}
	return false
}

// instrument assigns the Deployment's pods to the process node and makes its containers run the programs.
func instrument(c *plan.Controller, d *appsv1.Deployment, programs Programs) error {
	spec := &d.Spec.Template.Spec
	container, err := controllerContainer(c, spec)
	if err != nil {
		return err
	}
	meta := &d.Spec.Template.ObjectMeta
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[cluster.AnnotationController] = c.Name
	if c.APIServer != "" {
		_, meta.Annotations[cluster.AnnotationAPIServer] = plan.SplitServer(c.APIServer)
	}
	meta.Annotations[cluster.AnnotationBinaryPrefix+container.Name] = programs.Controller

	if c.Replicas > 0 {
		replicas := int32(c.Replicas)
		d.Spec.Replicas = &replicas
	}
	// The manifests' requirements on nodes (zones, architectures, control-plane nodes) refer to other clusters.
	spec.Affinity = nil
	spec.TopologySpreadConstraints = nil
	spec.NodeSelector = map[string]string{cluster.LabelProcessNode: "true"}
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
		Key: cluster.TaintProcessNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})

	nameProgram(c, container)
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if other := &list[i]; other != container {
				if program := programOf(c, container, other, programs); program != "" {
					meta.Annotations[cluster.AnnotationBinaryPrefix+other.Name] = program
				}
			}
		}
	}
	if err := addFiles(meta, spec, programs); err != nil {
		return err
	}
	container.Args = append(container.Args, c.Args...)
	from, err := valuesFrom(c)
	if err != nil {
		return err
	}
	env := maps.Clone(c.Env)
	if env == nil {
		env = map[string]string{}
	}
	if c.WatchList != nil {
		name, value, args := watchListSwitch(c, container, *c.WatchList)
		env[name] = value
		container.Args = append(container.Args, args...)
	}
	for _, k := range slices.Sorted(maps.Keys(from)) {
		setEnv(container, corev1.EnvVar{Name: k, ValueFrom: from[k]})
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		setEnv(container, corev1.EnvVar{Name: k, Value: env[k]})
	}
	return nil
}

// Missing lists the containers of a controller's pods that have neither a program nor a command: those that must do
// something before the controller starts, and those beside it. Own are the controller's objects, as [Controller]
// returns them. Nothing is missing if the suite's type of cluster runs the containers' images.
func Missing(suite *plan.Suite, own []*unstructured.Unstructured) (before, beside []corev1.Container) {
	if kind, _ := plan.LookupClusterKind(suite.Cluster.Type); slices.Contains(kind.Can, plan.LoadImages) {
		return nil, nil
	}
	template, err := templateOf(own)
	if err != nil || template == nil {
		return nil, nil
	}
	always := corev1.ContainerRestartPolicyAlways
	for i, list := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for _, c := range list {
			switch {
			case template.Annotations[cluster.AnnotationBinaryPrefix+c.Name] != "" || len(c.Command) > 0:
			case i == 0 && (c.RestartPolicy == nil || *c.RestartPolicy != always):
				before = append(before, c)
			default:
				beside = append(beside, c)
			}
		}
	}
	return before, beside
}

// templateOf returns the pod template of a controller's Deployment, or its pod; nil: it has neither.
func templateOf(own []*unstructured.Unstructured) (*corev1.PodTemplateSpec, error) {
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	for _, u := range slices.Backward(own) {
		switch u.GetKind() {
		case "Deployment":
			var d appsv1.Deployment
			err := convert(u.Object, &d)
			return &d.Spec.Template, err
		case "Pod":
			var p corev1.Pod
			err := convert(u.Object, &p)
			return &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}, err
		}
	}
	return nil, nil
}

// ProgramsOf returns the programs of a controller of the suite.
func ProgramsOf(suite *plan.Suite, c *plan.Controller, binary string) (Programs, error) {
	all := Programs{Controller: binary, Others: map[string]string{}, Files: map[string]string{}}
	for _, of := range []struct{ from, to map[string]string }{{c.Executables, all.Others}, {c.Files, all.Files}} {
		for key, file := range of.from {
			abs, err := filepath.Abs(plan.Beside(suite.File, file))
			if err != nil {
				return all, err
			}
			of.to[key] = abs
		}
	}
	return all, nil
}

// nameProgram makes a container's first argument its command if that is the program.
func nameProgram(c *plan.Controller, container *corev1.Container) {
	if args := container.Args; len(container.Command) == 0 && len(args) > 0 && isProgram(args[0], c.Build) {
		container.Command, container.Args = args[:1], args[1:]
	}
}

// programOf returns the executable that another container of the controller's pods runs; empty: it runs its command as
// it is. In the controller's image there may be other programs, such as a shell.
func programOf(c *plan.Controller, controllers, other *corev1.Container, programs Programs) string {
	if other.Image != controllers.Image {
		if len(other.Command) > 0 {
			return ""
		}
		return programs.Others[other.Image]
	}
	nameProgram(c, other)
	if command := other.Command; len(command) > 0 && !isProgram(command[0], c.Build) &&
		!(len(controllers.Command) > 0 && command[0] == controllers.Command[0]) {
		return ""
	}
	return programs.Controller
}

// isProgram reports whether a container's first argument is the path of the program that is built: its image has no
// entrypoint, as those of Open Cluster Management.
func isProgram(arg string, build *plan.Build) bool {
	return build != nil && path.IsAbs(arg) && path.Base(arg) == path.Base(filepath.ToSlash(build.Package))
}

// addFiles gives the files of the controller's image to the containers that run its program.
func addFiles(meta *metav1.ObjectMeta, spec *corev1.PodSpec, programs Programs) error {
	if len(programs.Files) == 0 {
		return nil
	}
	text, err := json.Marshal(programs.Files)
	if err != nil {
		return err
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if meta.Annotations[cluster.AnnotationBinaryPrefix+c.Name] == programs.Controller {
			meta.Annotations[cluster.AnnotationFilesPrefix+c.Name] = string(text)
		}
	}
	return nil
}

func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name })
	c.Env = append(c.Env, v)
}

// valuesFrom decodes the variables that have valueFrom.
func valuesFrom(c *plan.Controller) (map[string]*corev1.EnvVarSource, error) {
	sources := map[string]*corev1.EnvVarSource{}
	for name, content := range c.EnvFrom {
		source := &corev1.EnvVarSource{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, source,
			true); err != nil {
			return nil, fmt.Errorf("env %s: valueFrom: %w", name, err)
		}
		sources[name] = source
	}
	return sources, nil
}

func controllerContainer(c *plan.Controller, spec *corev1.PodSpec) (*corev1.Container, error) {
	if len(spec.Containers) == 1 {
		return &spec.Containers[0], nil
	}
	var names []string
	for i := range spec.Containers {
		if c.Image != "" && spec.Containers[i].Image == c.Image {
			return &spec.Containers[i], nil
		}
		names = append(names, spec.Containers[i].Name+" ("+spec.Containers[i].Image+")")
	}
	return nil, fmt.Errorf("the Deployment has %d containers (%s): set `image:` to that of the controller's container",
		len(names), list(names))
}

// generate returns the objects that a controller without its own manifests needs.
func generate(c *plan.Controller) (appsv1.Deployment, []runtime.Object) {
	namespace := c.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	role := c.ClusterRole
	if role == "" {
		role = "cluster-admin"
	}
	labels := map[string]string{"app.kubernetes.io/name": c.Name}
	meta := metav1.ObjectMeta{Name: c.Name, Namespace: namespace, Labels: labels}
	replicas := int32(1)
	account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: meta}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "trommel-" + c.Name, Labels: labels},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: c.Name, Namespace: namespace}},
	}
	d := appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: c.Name,
					Containers: []corev1.Container{{
						Name: "controller", Image: "trommel.dev/" + c.Name,
						// The variables that nearly every operator's Deployment defines, under these names.
						Env: []corev1.EnvVar{field("POD_NAME", "metadata.name"),
							field("POD_NAMESPACE", "metadata.namespace"),
							field("POD_IP", "status.podIP")},
					}},
				},
			},
		},
	}
	return d, []runtime.Object{account, binding}
}

// pod is the one pod of a Deployment.
func pod(d *appsv1.Deployment) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: d.Spec.Template.ObjectMeta,
		Spec:       d.Spec.Template.Spec,
	}
	p.Name, p.Namespace = d.Name, d.Namespace
	return p
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}
