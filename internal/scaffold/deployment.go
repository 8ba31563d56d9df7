package scaffold

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
)

// Program is a controller's program in one of its Deployments.
type Program struct {
	Name       string
	Deployment string // namespace/name in the manifests; empty: none was found
	Image      string // of its container, if there are several
	Other      string // its main package, if it is another one than the controller's
	Serves     string // what API servers call it for
}

// match is a container that runs one of the programs.
type match struct {
	program    program
	deployment *unstructured.Unstructured
	image      string // of the container
	command    string // of the container, if it has one
	alone      bool   // it is the Deployment's only one
	score      int
	unsure     bool // it is unsure which container it is
}

// find chooses the container that most likely runs one of the programs; false if there is no Deployment.
func (s *source) find(mains []program) bool {
	s.match = s.likeliest(mains, nil)
	return s.match.deployment != nil
}

// likeliest returns the container that most likely runs one of the programs, of the Deployments that are not left out.
func (s *source) likeliest(mains []program, leftOut []*unstructured.Unstructured) (best match) {
	for _, u := range s.objects {
		if slices.Contains(leftOut, u) {
			continue
		}
		containers := containersOf(u)
		for _, c := range containers {
			c, _ := c.(map[string]any)
			for _, p := range mains {
				m := match{program: p, deployment: u, score: p.rank + containerScore(u, c, p)}
				m.image, m.command = imageAndCommand(c)
				if m.alone = len(containers) == 1; !m.alone {
					m.unsure = m.score-p.rank < 10
				}
				if best.deployment == nil || m.score > best.score {
					best = m
				}
			}
		}
	}
	return best
}

// containersOf returns the containers of a Deployment, and none of other objects.
func containersOf(u *unstructured.Unstructured) []any {
	if u.GetKind() != "Deployment" {
		return nil
	}
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	return containers
}

// imageAndCommand returns a container's image, and its command without arguments, which is empty if it is the image's.
func imageAndCommand(container map[string]any) (image, command string) {
	image, _ = container["image"].(string)
	if words, _, _ := unstructured.NestedStringSlice(container, "command"); len(words) > 0 {
		command = words[0]
	}
	return image, command
}

// same reports whether a container runs the same program.
func (m match) same(container any) bool {
	c, _ := container.(map[string]any)
	image, command := imageAndCommand(c)
	return image != "" && image == m.image && command == m.command
}

// containerScore returns how likely it is that the container runs the program.
func containerScore(deployment *unstructured.Unstructured, c map[string]any, p program) int {
	name, _ := c["name"].(string)
	image, _ := c["image"].(string)
	of, byKo := strings.CutPrefix(image, "ko://") // ko, which builds images, takes the package's import path
	image, _, _ = strings.Cut(path.Base(image), "@")
	image, _, _ = strings.Cut(image, ":")
	command, _, _ := unstructured.NestedStringSlice(c, "command")
	score := 0
	switch {
	case byKo && of == p.path:
		score += 40
	case byKo:
		score -= 40
	}
	if len(command) > 0 {
		switch base := path.Base(command[0]); {
		case base == p.binary:
			score += 40
		case strings.HasSuffix(base, "-"+p.binary):
			score += 30
		}
	}
	switch words := strings.Split(image, "-"); {
	case image == p.binary || image == path.Base(p.pkg):
		score += 20
	case image == p.module:
		score += 10
	case slices.Contains(words, path.Base(p.pkg)) || slices.Contains(words, p.binary):
		score += 6
	}
	switch name {
	case "manager", "controller", "operator", "controller-manager", p.binary, path.Base(p.pkg):
		score += 15
	}
	score = min(score, 45) // it certainly runs this program, but the program may not be the controller
	for _, word := range []string{"controller", "operator", "manager"} {
		if strings.Contains(deployment.GetName(), word) {
			score += 5
		}
	}
	if image != "" && (deployment.GetName() == image || strings.HasSuffix(deployment.GetName(), "-"+image)) {
		score += 8 // others with this image have further words in their names: they do something else with it
	}
	for _, word := range []string{"proxy", "sidecar", "exporter"} {
		if strings.Contains(name, word) || strings.Contains(image, word) {
			score -= 40
		}
	}
	for _, word := range []string{"webhook", "cert", "ui", "dashboard", "agent", "apiserver", "metrics", "cleanup"} {
		if slices.Contains(strings.Split(deployment.GetName(), "-"), word) &&
			!slices.Contains(strings.Split(p.module, "-"), word) {
			score -= 10
		}
	}
	return score
}

// closeScores is how near the scores of two Deployments are if the user must choose.
const closeScores = 6

// takeDeployment records the Deployment that was found and its intended namespace, and those that run the same program
// for other things, such as its webhooks.
func (r *Repository) takeDeployment(s *source, mains []program) {
	d := s.match.deployment
	namespace := d.GetNamespace()
	if namespace == "" {
		namespace = meantFor(s)
		if namespace == "" && s.unbound() {
			namespace = "default"
		}
		if namespace != "" {
			for i := range s.manifests {
				s.manifests[i].Namespace = namespace
			}
		} else {
			namespace = "default"
		}
	}
	r.Deployment = namespace + "/" + d.GetName()
	if !s.match.alone {
		r.Image = s.match.image
	}
	known := []*unstructured.Unstructured{d}
	for _, u := range s.objects {
		containers := containersOf(u)
		if u == d || !slices.ContainsFunc(containers, s.match.same) {
			continue
		}
		also := Program{
			Name: controllerName(u.GetName()), Deployment: cmp.Or(u.GetNamespace(), namespace) + "/" + u.GetName(),
		}
		if len(containers) > 1 {
			also.Image = s.match.image
		}
		r.addProgram(also)
		known = append(known, u)
	}
	known = append(known, r.takeServers(s, mains, known, namespace)...)
	if other := s.likeliest(mains, known); other.deployment != nil && other.score > s.match.score-closeScores {
		r.Notes = append(r.Notes, fmt.Sprintf("Deployment %s (image %s) may run the controller too; "+
			"check `deployment:` and `package:`", other.deployment.GetName(), other.image))
	}
	r.checkSettings(s)
	if s.match.unsure {
		r.Notes = append(r.Notes,
			"the Deployment has several containers; the controller's was guessed: check `image:`")
	}
}

// reference finds a variable in an argument.
var reference = regexp.MustCompile(`\$\((\w+)\)`)

// checkSettings notes what the manifests leave to the user: variables without a value, and rights.
func (r *Repository) checkSettings(s *source) {
	var empty []string
	for _, c := range containersOf(s.match.deployment) {
		container, _ := c.(map[string]any)
		if !s.match.same(c) {
			continue
		}
		args, _, _ := unstructured.NestedStringSlice(container, "args")
		used := reference.FindAllStringSubmatch(strings.Join(args, " "), -1)
		variables, _, _ := unstructured.NestedSlice(container, "env")
		for _, v := range variables {
			v, _ := v.(map[string]any)
			name, _ := v["name"].(string)
			if v["valueFrom"] == nil && (v["value"] == nil || v["value"] == "") &&
				slices.ContainsFunc(used, func(m []string) bool { return m[1] == name }) {
				empty = append(empty, name)
			}
		}
	}
	if len(empty) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("the Deployment's arguments use variables without a value (%s): write "+
			"those that the controller needs below its name, such as `env: {%s: …}`",
			strings.Join(empty, ", "), empty[0]))
	}
	account := accountOf(s.match.deployment)
	if account != "" && !slices.ContainsFunc(s.objects, func(u *unstructured.Unstructured) bool {
		return binds(u, account)
	}) {
		r.Notes = append(r.Notes, fmt.Sprintf("the manifests bind no role to the Deployment's service account %s, so "+
			"the controller may do nothing: add a file with its ClusterRoleBinding to the manifests", account))
	}
}

// accountOf returns the service account of a Deployment's pods, under its current or former name; empty: the default.
func accountOf(deployment *unstructured.Unstructured) string {
	spec, _, _ := unstructured.NestedMap(deployment.Object, "spec", "template", "spec")
	name, _ := spec["serviceAccountName"].(string)
	former, _ := spec["serviceAccount"].(string)
	return cmp.Or(name, former)
}

// binds reports whether an object gives a service account of that name a role.
func binds(u *unstructured.Unstructured, account string) bool {
	if kind := u.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
		return false
	}
	subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
	return slices.ContainsFunc(subjects, func(subject any) bool {
		m, _ := subject.(map[string]any)
		return m["name"] == account || m["kind"] == "Group"
	})
}

// addProgram adds a program of the suite, with a name that no other one has.
func (r *Repository) addProgram(p Program) {
	for p.Name == r.Name || slices.ContainsFunc(r.Also, func(o Program) bool { return o.Name == p.Name }) {
		p.Name += "-2"
	}
	r.Also = append(r.Also, p)
}

// certain is how well a container must match a program that is not the controller.
const certain = 20

// takeServers adds the other programs of the module that API servers call: without them the cluster would refuse what
// their webhooks are for, and types would be missing. It returns their Deployments.
func (r *Repository) takeServers(
	s *source, mains []program, known []*unstructured.Unstructured, namespace string,
) (taken []*unstructured.Unstructured) {
	called := calledServices(s.objects)
	for _, u := range s.objects {
		if len(containersOf(u)) == 0 || slices.Contains(known, u) {
			continue
		}
		i := slices.IndexFunc(s.objects, func(service *unstructured.Unstructured) bool {
			_, selected := selectedBy(service, u)
			return selected && called[service.GetName()] != ""
		})
		if i < 0 {
			continue
		}
		one := &source{objects: []*unstructured.Unstructured{u}}
		if !one.find(mains) || one.match.score-one.match.program.rank < certain {
			r.Notes = append(r.Notes, fmt.Sprintf("Deployment %s serves %s, but its program is not in this module: "+
				"the cluster will miss it", u.GetName(), called[s.objects[i].GetName()]))
			continue
		}
		also := Program{
			Name: controllerName(u.GetName()), Deployment: cmp.Or(u.GetNamespace(), namespace) + "/" + u.GetName(),
			Other: one.match.program.pkg, Serves: called[s.objects[i].GetName()],
		}
		if !one.match.alone {
			also.Image = one.match.image
		}
		r.addProgram(also)
		taken = append(taken, u)
	}
	return taken
}

// calledServices returns what the Services are for that API servers call, by their names.
func calledServices(list []*unstructured.Unstructured) map[string]string {
	called := map[string]string{}
	add := func(in any, what string, fields ...string) {
		m, _ := in.(map[string]any)
		if name, _, _ := unstructured.NestedString(m, fields...); name != "" {
			called[name] = what
		}
	}
	for _, u := range list {
		what := u.GetKind() + " " + u.GetName()
		switch u.GetKind() {
		case "APIService":
			add(u.Object, what, "spec", "service", "name")
		case definitionKind:
			add(u.Object, "the conversion of "+what, "spec", "conversion", "webhook", "clientConfig", "service", "name")
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
			for _, hook := range hooks {
				add(hook, what, "clientConfig", "service", "name")
			}
		}
	}
	return called
}

// unbound reports whether a ClusterRoleBinding names a service account without a namespace: the manifests are meant to
// be applied with one, by a kustomization of the user's own.
func (s *source) unbound() bool {
	return slices.ContainsFunc(s.objects, func(u *unstructured.Unstructured) bool {
		return len(manifests.CheckSubjects(u)) > 0
	})
}

// meantFor returns the namespace that manifests without a namespace are intended for: that of the service account that
// they give roles to, or the only one that they create.
func meantFor(s *source) string {
	account := accountOf(s.match.deployment)
	for _, u := range s.objects {
		if kind := u.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
		for _, subject := range subjects {
			if m, _ := subject.(map[string]any); m["kind"] == "ServiceAccount" && m["name"] == account &&
				account != "" {
				if namespace, _ := m["namespace"].(string); namespace != "" {
					return namespace
				}
			}
		}
	}
	var made []string
	for _, u := range s.objects {
		if u.GetKind() == "Namespace" {
			made = append(made, u.GetName())
		}
	}
	if len(made) == 1 {
		return made[0]
	}
	return ""
}
