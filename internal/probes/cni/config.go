package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of cni-config.
const (
	ConfigMissing       = "CNIConfigMissing"
	ConfigInvalid       = "CNIConfigInvalid"
	ConfigUnreadable    = "CNIConfigUnreadable"
	PluginMissing       = "CNIPluginMissing"
	PluginNotExecutable = "CNIPluginNotExecutable"
	PluginUnreadable    = "CNIPluginUnreadable"
)

// configReasons are API.
var configReasons = reasons.Table{
	{Name: ConfigMissing, Severity: reasons.Fatal, Says: "there is no CNI configuration, so no pod can get a network", Do: "see whether the network plugin's DaemonSet runs on this machine; it usually writes the file"},
	{Name: ConfigInvalid, Severity: reasons.Fatal, Says: "the CNI configuration that the runtime takes first is not valid", Do: "repair or remove the named file"},
	{Name: ConfigUnreadable, Severity: reasons.Unknown, Says: "the CNI configuration could not be read", Do: "see the message: give the agent the right to read the file, or look for I/O errors"},
	{Name: PluginMissing, Severity: reasons.Fatal, Says: "a plugin that the CNI configuration names is not there", Do: "install the named binary, or let the network plugin's DaemonSet do so"},
	{Name: PluginNotExecutable, Severity: reasons.Fatal, Says: "a plugin that the CNI configuration names cannot be executed", Do: "install the named binary again; copying it may have been cut short"},
	{Name: PluginUnreadable, Severity: reasons.Unknown, Says: "it could not be seen whether a plugin is there", Do: "see the message: give the agent the right to search the folder, or look for I/O errors"},
}

// kubeletDir exists where a kubelet has ever run.
const kubeletDir = "/var/lib/kubelet"

// ConfigOptions configure cni-config.
type ConfigOptions struct {
	ConfigDir string   `key:"configDir" doc:"folder of CNI configuration, conf_dir of the container runtime" is:"abspath"`
	BinDirs   []string `key:"binDirs" doc:"folders of CNI plugins, bin_dir of the container runtime, in the order in which it searches them" is:"abspath"`
	Required  bool     `key:"required" doc:"a machine without any CNI is at fault; otherwise the check does not apply to it"`
}

// Validate reports an empty list of folders.
func (o ConfigOptions) Validate(fault func(what, allowed string, keys ...string)) {
	if len(o.BinDirs) == 0 {
		fault("the list is empty", "at least one folder", "binDirs")
	}
}

// Config is the check "cni-config": does the CNI configuration parse, and are its plugins there?
//
// It reads what containerd would. Of the files *.conf, *.conflist and *.json in configDir the first by name decides
// alone; when it is broken containerd has no network, whatever the files after it hold (go-cni 1.1, loadFromConfDir),
// and so the check is Fatal. CRI-O would pass on to the next file that parses; on machines with CRI-O a broken first
// file is reported although pods may still start. A list without loadOnlyInlinedPlugins also takes in the *.conf files
// in the folder that has the network's name (libcni 1.3, NetworkConfFromFile).
//
// A plugin is searched as libcni does: the first regular file of its name in binDirs. A file that cannot be read for
// want of a right or because of an I/O error makes the check Unknown: it says nothing of the network.
var Config = probes.Define(probes.Kind{
	Name:        "cni-config",
	Condition:   "fettle.dev/NetworkReady",
	Description: "Parses the CNI configuration that the container runtime would take, and looks for the plugin binaries it names.",
	Reasons:     configReasons,
	Interval:    30 * time.Second,
	Timeout:     2 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 1},
}, func() ConfigOptions {
	return ConfigOptions{ConfigDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}}
}, func(env probes.Env, o ConfigOptions) probes.Probe { return look{host: env.Host, ConfigOptions: o} })

type look struct {
	host *hostfs.Root
	ConfigOptions
}

func (l look) Run(context.Context) health.Result {
	files, err := l.candidates()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.absent()
	case err != nil:
		return probes.Because(configReasons, ConfigUnreadable, "%v", err)
	case len(files) == 0:
		return probes.Because(configReasons, ConfigMissing, "no *.conf, *.conflist or *.json in %s", l.ConfigDir)
	}
	network, fault := l.load(files[0])
	if fault != nil {
		return *fault
	}
	if fault := l.findPlugins(network); fault != nil {
		return *fault
	}
	return probes.OK("network %q of %s has its plugins", network.name, network.file)
}

// absent tells a machine whose network is not set up yet from one that has nothing to do with pods: only a kubelet needs
// a CNI configuration. That plugins are installed says nothing; tools for single containers bring them along.
func (l look) absent() health.Result {
	if l.Required {
		return probes.Because(configReasons, ConfigMissing, "%s does not exist", l.ConfigDir)
	}
	switch _, err := l.host.Stat(kubeletDir); {
	case err == nil:
		return probes.Because(configReasons, ConfigMissing, "%s does not exist, although %s does", l.ConfigDir, kubeletDir)
	case !missing(err):
		return probes.Because(configReasons, ConfigUnreadable, "%v", err)
	}
	return probes.NotApplicable("neither %s nor %s exists", l.ConfigDir, kubeletDir)
}

// candidates are the configuration files in the order in which the runtime considers them.
func (l look) candidates() ([]string, error) {
	entries, err := l.host.ReadDir(l.ConfigDir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(e.Name())) {
			files = append(files, path.Join(l.ConfigDir, e.Name()))
		}
	}
	return files, nil
}

// read takes in one file; the fault is Fatal when no reader could get a configuration from it.
func (l look) read(file string) ([]byte, *health.Result) {
	content, err := l.host.ReadFile(file)
	switch {
	case err == nil:
		return content, nil
	case missing(err):
		return nil, fault(ConfigInvalid, "%s is a link that leads nowhere", file)
	case errors.Is(err, hostfs.ErrNotRegular), errors.Is(err, hostfs.ErrTooLarge), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO):
		return nil, fault(ConfigInvalid, "%v", err)
	default:
		return nil, fault(ConfigUnreadable, "%v", err)
	}
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func fault(reason, format string, args ...any) *health.Result {
	r := probes.Because(configReasons, reason, "%s", fmt.Sprintf(format, args...))
	return &r
}
