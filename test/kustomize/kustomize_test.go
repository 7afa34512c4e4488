// Package kustomize builds packaging/kustomize as `kubectl apply -k` does, and checks the result against the types of
// Kubernetes: no field may be misspelt, and every reference must have its target. It is a module of its own, so that agl does
// not depend on these types.
package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const base = "../../packaging/kustomize"

// workload is an object that starts pods.
type workload struct {
	name     string
	selector map[string]string
	labels   map[string]string
	pod      core.PodSpec
	claims   []core.PersistentVolumeClaim
}

// cluster has the objects of the base.
type cluster struct {
	workloads []workload
	services  map[string]core.Service
	configs   map[string]core.ConfigMap
}

// decode decodes an object like a Kubernetes server that refuses unknown fields. A field name
// with another case is unknown.
func decode(document []byte, object any) error {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(text, object)
	return errors.Join(append(unknown, err)...)
}

// add decodes an object strictly.
func (c *cluster) add(document []byte) error {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "Deployment":
		var d apps.Deployment
		if err := decode(document, &d); err != nil {
			return fmt.Errorf("deployment: %w", err)
		}
		c.workloads = append(c.workloads, workload{d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, d.Spec.Template.Spec, nil})
	case "StatefulSet":
		var s apps.StatefulSet
		if err := decode(document, &s); err != nil {
			return fmt.Errorf("stateful set: %w", err)
		}
		if _, ok := c.services[s.Spec.ServiceName]; !ok {
			return fmt.Errorf("stateful set %s: there is no service %q", s.Name, s.Spec.ServiceName)
		}
		c.workloads = append(c.workloads, workload{s.Name, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels, s.Spec.Template.Spec, s.Spec.VolumeClaimTemplates})
	case "Service":
		var s core.Service
		if err := decode(document, &s); err != nil {
			return fmt.Errorf("service: %w", err)
		}
		c.services[s.Name] = s
	case "ConfigMap":
		var m core.ConfigMap
		if err := decode(document, &m); err != nil {
			return fmt.Errorf("config map: %w", err)
		}
		c.configs[m.Name] = m
	default:
		return fmt.Errorf("no check for an object of the kind %q", kind.Kind)
	}
	return nil
}

// build builds a kustomization, services first.
func build(t *testing.T, dir string) *cluster {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{services: map[string]core.Service{}, configs: map[string]core.ConfigMap{}}
	objects := resources.Resources()
	slices.SortStableFunc(objects, func(a, b *resource.Resource) int {
		return strings.Compare(a.GetKind(), b.GetKind()) // of these kinds, StatefulSet is the last
	})
	for _, object := range objects {
		document, err := object.AsYAML()
		if err == nil {
			err = c.add(document)
		}
		if err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	return c
}

func TestBase(t *testing.T) {
	t.Parallel()
	c := build(t, base)
	var names []string
	for _, w := range c.workloads {
		names = append(names, w.name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"agl-postgres", "agl-proxy", "agl-runner", "agl-store"}) {
		t.Errorf("the workloads are %v", names)
	}
	for _, w := range c.workloads {
		if !within(w.selector, w.labels) {
			t.Errorf("%s: the selector %v is not in the labels %v", w.name, w.selector, w.labels)
		}
		c.checkPod(t, w)
	}
	for name, s := range c.services {
		i := slices.IndexFunc(c.workloads, func(w workload) bool { return within(s.Spec.Selector, w.labels) })
		if i < 0 {
			t.Errorf("service %s: no pod has the labels %v", name, s.Spec.Selector)
			continue
		}
		for _, p := range s.Spec.Ports {
			target := p.TargetPort.String()
			if target == "0" { // not given
				target = fmt.Sprint(p.Port)
			}
			if !slices.Contains(ports(c.workloads[i].pod.Containers), target) {
				t.Errorf("service %s: no container has the port %s", name, target)
			}
		}
	}
}

func within(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return len(part) > 0
}

// ports are the names and numbers of the ports of containers.
func ports(containers []core.Container) (list []string) {
	for _, c := range containers {
		for _, p := range c.Ports {
			list = append(list, p.Name, fmt.Sprint(p.ContainerPort))
		}
	}
	return list
}

func (c *cluster) checkPod(t *testing.T, w workload) {
	t.Helper()
	var volumes []string
	for _, v := range w.pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil {
			if _, ok := c.configs[v.ConfigMap.Name]; !ok {
				t.Errorf("%s: there is no config map %q among %v", w.name, v.ConfigMap.Name, slices.Collect(maps.Keys(c.configs)))
			}
		}
	}
	for _, claim := range w.claims {
		volumes = append(volumes, claim.Name)
	}
	if p := w.pod.SecurityContext; p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile == nil {
		t.Errorf("%s: runs as root, or without a seccomp profile", w.name)
	}
	if w.pod.AutomountServiceAccountToken == nil || *w.pod.AutomountServiceAccountToken {
		t.Errorf("%s: has a token of the cluster's API", w.name)
	}
	secrets := documentedSecrets(t)
	for _, container := range w.pod.Containers {
		s := container.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
			t.Errorf("%s: container %s may do more than it needs", w.name, container.Name)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: container %s has no memory limit, or asks for no processor", w.name, container.Name)
		}
		for _, m := range container.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				t.Errorf("%s: container %s mounts %q, the volumes are %v", w.name, container.Name, m.Name, volumes)
			}
		}
		for _, e := range container.Env {
			if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
				continue
			}
			if ref := e.ValueFrom.SecretKeyRef; ref.Name != "agl" || !slices.Contains(secrets, ref.Key) {
				t.Errorf("%s: %s is from %s of the secret %s; the command that makes it writes %v", w.name, e.Name, ref.Key, ref.Name, secrets)
			}
		}
		for _, probe := range []*core.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
			if probe != nil && probe.HTTPGet != nil && !slices.Contains(ports([]core.Container{container}), probe.HTTPGet.Port.String()) {
				t.Errorf("%s: a probe asks the port %s, which container %s has not", w.name, probe.HTTPGet.Port.String(), container.Name)
			}
		}
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if url := regexp.MustCompile(`^http://([a-z-]+):(\d+)$`).FindStringSubmatch(arg); url != nil {
				service, ok := c.services[url[1]]
				if !ok || !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return fmt.Sprint(p.Port) == url[2] }) {
					t.Errorf("%s: %s is no service of the base", w.name, arg)
				}
			}
		}
	}
}

// documentedSecrets returns the keys of the secret that the command in kustomization.yaml makes.
func documentedSecrets(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(base + "/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`--from-literal=([a-z-]+)=`).FindAllSubmatch(text, -1) {
		list = append(list, string(found[1]))
	}
	return list
}

// TestMistakes checks that a misspelt field, a value of another type and an unknown kind are noticed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(base + "/runner.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&cluster{}).add(text); err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ from, to string }{
		{"replicas: 2", "replica: 2"},
		{"replicas: 2", "replicas: two"},
		{"drop: [ALL]", "drop: {ALL: true}"},
		{"readOnlyRootFilesystem:", "readonlyRootFilesystem:"},
		{"kind: Deployment", "kind: Deploiment"},
	} {
		wrong := bytes.Replace(text, []byte(change.from), []byte(change.to), 1)
		if bytes.Equal(wrong, text) {
			t.Fatalf("runner.yaml has no %q", change.from)
		}
		if err := (&cluster{}).add(wrong); err == nil {
			t.Errorf("%q is not noticed", change.to)
		}
	}
}
