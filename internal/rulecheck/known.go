package rulecheck

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ReportsAnnotation on a DaemonSet names the node condition types that its pods report, separated by commas; one that ends
// in * stands for every type that begins so. With it the table of known reporters is not asked, also when it is empty.
const ReportsAnnotation = "fettle.dev/reports-conditions"

// knownReporter is software that reports node conditions and does not say so by annotation.
type knownReporter struct {
	// images by which its containers are known: the last elements of the path, without registry, tag and digest.
	images []string
	// types that it reports as its makers deliver it.
	types []string
	// env is the variable of the container that names the one type that it reports.
	env string
}

// knownReporters is what is asked for DaemonSets without ReportsAnnotation. Kubelet and cloud controllers report conditions
// too, but no taint keeps them away.
var knownReporters = []knownReporter{
	{images: []string{"node-problem-detector"}, types: []string{
		"KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown", "CperHardwareErrorFatal", "CorruptDockerOverlay2", "DiskBadBlock",
		"FrequentKubeletRestart", "FrequentContainerdRestart", "FrequentDockerRestart", "FrequentUnregisterNetDevice",
		"KubeletUnhealthy", "ContainerRuntimeUnhealthy", "KubeProxyUnhealthy", "NTPProblem",
	}},
	{images: []string{"eks-node-monitoring-agent"}, types: []string{
		"AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady",
	}},
	{images: []string{"calico/node", "flannel", "cilium/cilium"}, types: []string{string(corev1.NodeNetworkUnavailable)}},
	{images: []string{"node-readiness-reporter"}, env: "CONDITION_TYPE"},
}

// reportedBy gives the condition types that a container reports, as far as the table knows.
func reportedBy(c corev1.Container) []string {
	for _, known := range knownReporters {
		if !slices.ContainsFunc(known.images, func(image string) bool { return isImage(c.Image, image) }) {
			continue
		}
		types := slices.Clone(known.types)
		for _, variable := range c.Env {
			if known.env != "" && variable.Name == known.env && variable.Value != "" {
				types = append(types, variable.Value)
			}
		}
		return types
	}
	return nil
}

// isImage reports whether a reference, e.g. registry.example.com:5000/calico/node:v3.29@sha256:…, is of the image.
func isImage(reference, image string) bool {
	path, _, _ := strings.Cut(reference, "@")
	if colon := strings.LastIndex(path, ":"); colon > strings.LastIndex(path, "/") {
		path = path[:colon]
	}
	return path == image || strings.HasSuffix(path, "/"+image)
}

// matches reports whether a name of ReportsAnnotation or of the table stands for a condition type.
func matches(name, conditionType string) bool {
	if prefix, open := strings.CutSuffix(name, "*"); open {
		return strings.HasPrefix(conditionType, prefix)
	}
	return name == conditionType
}
