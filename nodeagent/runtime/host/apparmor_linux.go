package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

const (
	// appArmor is where the kernel lists the profiles that it has loaded.
	appArmor = "/sys/kernel/security/apparmor"
	// appArmorEnabled says Y where the kernel obeys profiles.
	appArmorEnabled = "/sys/module/apparmor/parameters/enabled"
	// appArmorABI is included by profiles that know no more than AppArmor 3.0 mediates. Older parsers have no such file,
	// nor need one.
	appArmorABI = "/etc/apparmor.d/abi/3.0"
	// appArmorParser loads profiles. It is in parserDirs, should PATH be one for users.
	appArmorParser = "apparmor_parser"
	parserDirs     = "/usr/sbin:/sbin"
)

// defaultProfileName is the profile of containers that ask for the runtime's.
const defaultProfileName = "monoplane-default"

// defaultProfileText lets a container do what it may by its other restrictions, but not mount, nor change the machine
// by way of /proc and /sys: the same again as the masked and read-only paths, where these are lifted or got around.
// Below /proc/sys only kernel/shm* can be written, which every namespace of IPC has for itself, and below /sys only
// cgroups. AppArmor has no "all but", so that the names that differ in any letter are listed. The placeholders are the
// name and the signals of the runtime.
const defaultProfileText = `profile %[1]s flags=(attach_disconnected, mediate_deleted) {
  capability,
  file,
  network,
  umount,

  signal (send, receive) peer=%[1]s,
%[2]s  ptrace (read, readby, trace, tracedby) peer=%[1]s,

  deny mount,

  deny /proc/* w,
  deny /proc/{[^0-9s],s[^y],sy[^s],sys[^/]}*/** w,
  deny /proc/sys/{[^k],k[^e],ke[^r],ker[^n],kern[^e],kerne[^l],kernel[^/]}** w,
  deny /proc/sys/kernel/{[^s],s[^h],sh[^m]}** w,
  deny /proc/{kcore,sysrq-trigger} rwklx,

  deny /sys/{[^f],f[^s],fs[^/]}** wkl,
  deny /sys/fs/{[^c],c[^g],cg[^r],cgr[^o],cgro[^u],cgrou[^p],cgroup[^/]}** wkl,
  deny /sys/{firmware,devices/virtual/powercap,kernel/security}/** rwklx,
}
`

// defaultProfile words the profile for a process that runs with a label, such as "unconfined". Containers are ended by
// their shims, which have it too, and by the machine's administrator.
func defaultProfile(label string, withABI bool) string {
	const signal = "  signal (receive) peer=%s,\n"
	signals := fmt.Sprintf(signal, "unconfined")
	if label != "unconfined" && label != "" && !strings.ContainsAny(label, "\"\n") {
		signals += fmt.Sprintf(signal, `"`+label+`"`)
	}
	text := fmt.Sprintf(defaultProfileText, defaultProfileName, signals)
	if withABI {
		text = "abi <abi/3.0>,\n" + text
	}
	return text
}

// ownLabel is what AppArmor confines this process by, without the mode.
func ownLabel() string {
	text, err := os.ReadFile("/proc/self/attr/apparmor/current")
	if errors.Is(err, os.ErrNotExist) {
		text, _ = os.ReadFile("/proc/self/attr/current") // On kernels that have no directory for each module.
	}
	label, _, _ := strings.Cut(strings.TrimSpace(string(text)), " (")
	return label
}

// profileLoader has the kernel load the default profile when a container first needs it.
type profileLoader struct {
	log *slog.Logger
	// has tells whether the kernel has the profile, and load has it take it, for as long as patience lasts.
	has      func() bool
	load     func(context.Context) error
	patience time.Duration

	mu    sync.Mutex // Guards what is below, and is held while the profile is loaded.
	tried bool
	err   error // Why the profile could not be loaded. That is not tried again.
}

// newProfileLoader returns nil where there is nothing to load: without AppArmor, and without root.
func newProfileLoader(log *slog.Logger, patience time.Duration) *profileLoader {
	text, err := os.ReadFile(appArmorEnabled)
	if err != nil || !strings.HasPrefix(string(text), "Y") || !isRoot() {
		return nil
	}
	return &profileLoader{log: log, has: hasDefaultProfile, load: loadDefaultProfile, patience: patience}
}

// name is that of the default profile, once it is loaded; "" with a reason where it cannot be, and without one where
// there is nothing to load. The first call loads it though the kernel has one of that name, which can be that of
// another version. Later ones do so if somebody has removed it.
func (l *profileLoader) name() (string, error) {
	if l == nil {
		return "", nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && (!l.tried || !l.has()) {
		l.tried, l.err = true, l.loaded()
		if l.err != nil {
			l.log.Warn("the default AppArmor profile cannot be loaded; unless the kernel has it, containers run without",
				"profile", defaultProfileName, "error", l.err)
		}
	}
	if l.err != nil && !l.has() {
		return "", l.err
	}
	return defaultProfileName, nil
}

// loaded loads the profile. A parser that does not even die when it is killed is left behind.
func (l *profileLoader) loaded() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- l.load(ctx) }()
	select {
	case err := <-done:
		if err == nil && !l.has() {
			err = errors.New("the kernel does not list it though it was loaded")
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("it is not loaded after %v", l.patience)
	}
}

func hasDefaultProfile() bool {
	names, err := loadedProfiles()
	return err == nil && slices.Contains(names, defaultProfileName)
}

// loadDefaultProfile has the kernel take the profile, in the place of one of that name.
func loadDefaultProfile(ctx context.Context) error {
	program, err := exec.LookPath(appArmorParser)
	for _, dir := range filepath.SplitList(parserDirs) {
		if err != nil {
			program, err = exec.LookPath(filepath.Join(dir, appArmorParser))
		}
	}
	if err != nil {
		return fmt.Errorf("%s is not installed", appArmorParser)
	}
	cmd := exec.CommandContext(ctx, program, "--replace", "--skip-cache")
	cmd.Stdin = strings.NewReader(defaultProfile(ownLabel(), exists(appArmorABI)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return nil
}

// defaultProfileOf returns the AppArmor profile of a container that asks for the runtime's, or for none and is not
// privileged; "" for any other. Containers of the machine's own files, which have this process's privileges too, have
// to ask. The error is why it has to run without.
func (r *Runtime) defaultProfileOf(c *container) (string, error) {
	sec := c.rec.config.GetLinux().GetSecurityContext()
	if sec.GetPrivileged() || sec.GetApparmor().GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault ||
		sec.GetApparmor() == nil && c.rec.image == "" {
		return "", nil
	}
	return r.profile.name()
}

// unprofiled says that a container goes without the default profile that it asks for.
func (r *Runtime) unprofiled(c *container) []string {
	_, err := r.defaultProfileOf(c)
	if err == nil || c.rec.config.GetLinux().GetSecurityContext().GetApparmor() == nil {
		return nil
	}
	return []string{fmt.Sprintf("appArmorProfile: RuntimeDefault is not applied: %v", err)}
}

// profiled sets the AppArmor profile that a container names.
func profiled(sec *runtimeapi.LinuxContainerSecurityContext, req *shimwire.StartRequest) error {
	if sec.GetApparmor().GetProfileType() != runtimeapi.SecurityProfile_Localhost || sec.GetPrivileged() {
		return nil
	}
	name := strings.TrimPrefix(sec.GetApparmor().GetLocalhostRef(), "localhost/")
	loaded, err := loadedProfiles()
	if err != nil {
		return badRequest("the AppArmor profile %q cannot be applied: AppArmor is not there, or not for this user: %v", name,
			err)
	}
	if !slices.Contains(loaded, name) {
		return badRequest("the AppArmor profile %q is not loaded on this machine (apparmor_parser loads profiles)", name)
	}
	req.AppArmor = name
	return nil
}

// loadedProfiles names the profiles that are loaded.
func loadedProfiles() ([]string, error) {
	var names []string
	text, err := os.ReadFile(filepath.Join(appArmor, "profiles"))
	if errors.Is(err, os.ErrPermission) {
		return profilesForAll()
	}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndex(line, " ("); i > 0 { // NAME (MODE)
			names = append(names, line[:i])
		}
	}
	return names, err
}

// profilesForAll names them to who may change to a profile, as everybody may, but not read the list. Here each has a
// directory, without the profiles that are parts of others.
func profilesForAll() (names []string, err error) {
	dir := filepath.Join(appArmor, "policy", "profiles")
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		// One that cannot be read has been removed meanwhile.
		if text, err := os.ReadFile(filepath.Join(dir, e.Name(), "name")); err == nil {
			names = append(names, strings.TrimSuffix(string(text), "\n"))
		}
	}
	return names, err
}
