package nodewright

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fettle-dev/fettle/api/nodewright/v1alpha1"
	"github.com/fettle-dev/fettle/internal/packages/stages"
)

var (
	packageName  = regexp.MustCompile(`^[a-z][-a-z0-9]{0,41}[a-z]$`)
	containerSHA = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// Validate reports everything that is wrong with a NodeWright by itself, by the paths of its fields.
func Validate(nw *v1alpha1.NodeWright) field.ErrorList {
	var all field.ErrorList
	spec, at := &nw.Spec, field.NewPath("spec")
	if _, err := metav1.LabelSelectorAsSelector(&spec.NodeSelectors); err != nil {
		all = append(all, field.Invalid(at.Child("nodeSelectors"), spec.NodeSelectors, err.Error()))
	}
	if _, err := metav1.LabelSelectorAsSelector(&spec.PodNonInterruptLabels); err != nil {
		all = append(all, field.Invalid(at.Child("podNonInterruptLabels"), spec.PodNonInterruptLabels, err.Error()))
	}
	if b := spec.InterruptionBudget; b != nil {
		at := at.Child("interruptionBudget")
		if spec.DeploymentPolicy != "" {
			all = append(all, field.Invalid(at, b, "excludes deploymentPolicy"))
		}
		if b.Percent != nil && b.Count != nil {
			all = append(all, field.Invalid(at, b, "takes percent or count, not both"))
		}
		if b.Percent != nil && (*b.Percent < 0 || *b.Percent > 100) {
			all = append(all, field.Invalid(at.Child("percent"), *b.Percent, "must be from 0 to 100"))
		}
		if b.Count != nil && *b.Count < 0 {
			all = append(all, field.Invalid(at.Child("count"), *b.Count, "must not be negative"))
		}
	}
	if spec.Priority < 0 { // 0 stands for the default
		all = append(all, field.Invalid(at.Child("priority"), spec.Priority, "must be at least 1"))
	}
	if s := spec.Sequencing; s != "" && s != v1alpha1.SequencingNode && s != v1alpha1.SequencingAll {
		all = append(all, field.NotSupported(at.Child("sequencing"), s, []v1alpha1.Sequencing{v1alpha1.SequencingNode, v1alpha1.SequencingAll}))
	}
	if d := spec.DrainConfig; d != nil {
		all = append(all, notNegative(at.Child("drainConfig", "timeout"), d.Timeout)...)
		all = append(all, notNegative(at.Child("drainConfig", "gracePeriod"), d.GracePeriod)...)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Packages)) {
		all = append(all, validatePackage(at.Child("packages").Key(name), name, spec.Packages[name], spec.Packages)...)
	}
	return append(all, cycles(at.Child("packages"), spec.Packages)...)
}

func notNegative(at *field.Path, d *metav1.Duration) field.ErrorList {
	if d != nil && d.Duration < 0 {
		return field.ErrorList{field.Invalid(at, d.Duration.String(), "must not be negative")}
	}
	return nil
}

func validatePackage(at *field.Path, name string, p v1alpha1.Package, others map[string]v1alpha1.Package) field.ErrorList {
	var all field.ErrorList
	if !packageName.MatchString(name) {
		all = append(all, field.Invalid(at, name, "the name must match "+packageName.String()))
	}
	if p.Name != "" {
		all = append(all, field.Forbidden(at.Child("name"), "the name of a package is its key"))
	}
	if p.Version == "" {
		all = append(all, field.Required(at.Child("version"), "a semantic version"))
	} else if _, err := semver.NewVersion(p.Version); err != nil {
		all = append(all, field.Invalid(at.Child("version"), p.Version, "must be a semantic version"))
	}
	all = append(all, validateImage(at.Child("image"), p.Image)...)
	if p.ContainerSHA != "" && !containerSHA.MatchString(p.ContainerSHA) {
		all = append(all, field.Invalid(at.Child("containerSHA"), p.ContainerSHA, "must be sha256: and 64 lower-case hexadecimal digits"))
	}
	if p.Interrupt != nil {
		all = append(all, validateInterrupt(at.Child("interrupt"), *p.Interrupt)...)
	}
	for _, dependency := range slices.Sorted(maps.Keys(p.DependsOn)) {
		at := at.Child("dependsOn").Key(dependency)
		if p.DependsOn[dependency] == "" {
			all = append(all, field.Required(at, "the version"))
		}
		if _, there := others[dependency]; !there {
			all = append(all, field.NotFound(at, dependency))
		}
	}
	all = append(all, validateConfig(at, p)...)
	if p.Resources != nil {
		all = append(all, validateResources(at.Child("resources"), *p.Resources)...)
	}
	all = append(all, notNegative(at.Child("gracefulShutdown"), p.GracefulShutdown)...)
	all = append(all, notNegative(at.Child("stageTimeout"), p.StageTimeout)...)
	if u := p.Uninstall; u != nil && u.Apply && !u.Enabled {
		all = append(all, field.Invalid(at.Child("uninstall", "apply"), true, "needs enabled"))
	}
	return all
}

func validateImage(at *field.Path, image string) field.ErrorList {
	last := image[strings.LastIndex(image, "/")+1:]
	switch {
	case image == "":
		return field.ErrorList{field.Required(at, "the repository of the image")}
	case strings.ContainsAny(image, " \t\r\n\v\f"):
		return field.ErrorList{field.Invalid(at, image, "must not hold spaces")}
	case strings.Contains(image, "@"):
		return field.ErrorList{field.Invalid(at, image, "must not have a digest; containerSHA is the place for it")}
	case strings.Contains(last, ":"):
		return field.ErrorList{field.Invalid(at, image, "must not have a tag; version is the tag")}
	}
	return nil
}

func validateInterrupt(at *field.Path, i v1alpha1.Interrupt) field.ErrorList {
	switch i.Type {
	case v1alpha1.InterruptService, v1alpha1.InterruptReboot, v1alpha1.InterruptNoop, v1alpha1.InterruptRestartAllServices:
		return nil
	}
	return field.ErrorList{field.NotSupported(at.Child("type"), i.Type, []v1alpha1.InterruptType{
		v1alpha1.InterruptService, v1alpha1.InterruptReboot, v1alpha1.InterruptNoop, v1alpha1.InterruptRestartAllServices})}
}

func validateConfig(at *field.Path, p v1alpha1.Package) field.ErrorList {
	var all field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(p.ConfigMap)) {
		for _, fault := range validation.IsConfigMapKey(key) {
			all = append(all, field.Invalid(at.Child("configMap").Key(key), key, fault))
		}
		if !utf8.ValidString(p.ConfigMap[key]) {
			all = append(all, field.Invalid(at.Child("configMap").Key(key), "(binary)", "must be valid UTF-8"))
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(p.ConfigInterrupts)) {
		at := at.Child("configInterrupts").Key(pattern)
		all = append(all, validateInterrupt(at, p.ConfigInterrupts[pattern])...)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(p.ConfigMap)), func(key string) bool { return stages.MatchKey(pattern, key) }) {
			all = append(all, field.Invalid(at, pattern, "matches no key of configMap"))
		}
	}
	return all
}

func validateResources(at *field.Path, r v1alpha1.PackageResources) field.ErrorList {
	var all field.ErrorList
	for _, each := range []struct {
		name string
		is   *resource.Quantity
	}{{"cpuRequest", r.CPURequest}, {"cpuLimit", r.CPULimit}, {"memoryRequest", r.MemoryRequest}, {"memoryLimit", r.MemoryLimit}} {
		switch {
		case each.is == nil:
			all = append(all, field.Required(at.Child(each.name), "resources takes all four of its fields, or none"))
		case each.is.Sign() <= 0:
			all = append(all, field.Invalid(at.Child(each.name), each.is.String(), "must be more than 0"))
		}
	}
	for _, pair := range []struct {
		name          string
		request, most *resource.Quantity
	}{{"cpu", r.CPURequest, r.CPULimit}, {"memory", r.MemoryRequest, r.MemoryLimit}} {
		if pair.request != nil && pair.most != nil && pair.most.Cmp(*pair.request) < 0 {
			all = append(all, field.Invalid(at.Child(pair.name+"Limit"), pair.most.String(), fmt.Sprintf("must not be less than %sRequest", pair.name)))
		}
	}
	return all
}

// cycles reports packages that depend on themselves, each cycle once.
func cycles(at *field.Path, packages map[string]v1alpha1.Package) field.ErrorList {
	var all field.ErrorList
	const visiting, done = 1, 2
	state := map[string]int{}
	var trail []string
	var visit func(name string)
	visit = func(name string) {
		switch state[name] {
		case done:
			return
		case visiting:
			cycle := append(slices.Clone(trail[slices.Index(trail, name):]), name)
			all = append(all, field.Invalid(at.Key(name).Child("dependsOn"), strings.Join(cycle, " → "), "packages must not depend on themselves"))
			return
		}
		state[name] = visiting
		trail = append(trail, name)
		for _, dependency := range slices.Sorted(maps.Keys(packages[name].DependsOn)) {
			if _, there := packages[dependency]; there {
				visit(dependency)
			}
		}
		trail = trail[:len(trail)-1]
		state[name] = done
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		visit(name)
	}
	return all
}
