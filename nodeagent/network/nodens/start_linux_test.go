package nodens_test

import (
	"os"
	"path/filepath"
	"testing"

	"monoplane.dev/nodeagent/network/nodens"
)

// An error says which settings of the machine forbid namespaces, and what to do about them.
func TestWhyForbidden(t *testing.T) {
	const (
		users    = "the setting user.max_user_namespaces is 0 (set it to 10000, say)"
		networks = "the setting user.max_net_namespaces is 0 (set it to 10000, say)"
		clone    = "the setting kernel.unprivileged_userns_clone is 0 (set it to 1)"
		apparmor = "the setting kernel.apparmor_restrict_unprivileged_userns is 1 (set it to 0, or give the program an " +
			"AppArmor profile)"
	)
	for name, c := range map[string]struct {
		settings map[string]string
		want     string
	}{
		"a kernel without such settings": {nil, ""},
		"all is allowed": {map[string]string{"user/max_user_namespaces": "15000", "user/max_net_namespaces": "15000",
			"kernel/unprivileged_userns_clone": "1", "kernel/apparmor_restrict_unprivileged_userns": "0"}, ""},
		"no user namespaces":    {map[string]string{"user/max_user_namespaces": "0"}, "; " + users},
		"no network namespaces": {map[string]string{"user/max_net_namespaces": "0"}, "; " + networks},
		"an old Debian":         {map[string]string{"kernel/unprivileged_userns_clone": "0"}, "; " + clone},
		"AppArmor":              {map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "; " + apparmor},
		"several": {map[string]string{"user/max_net_namespaces": "0", "user/max_user_namespaces": "15000",
			"kernel/apparmor_restrict_unprivileged_userns": "1"}, "; " + networks + "; " + apparmor},
	} {
		dir := t.TempDir()
		for file, value := range c.settings {
			path := filepath.Join(dir, file)
			check(t, os.MkdirAll(filepath.Dir(path), 0o755))
			check(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
		}
		if got := nodens.WhyForbiddenBy(dir); got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
