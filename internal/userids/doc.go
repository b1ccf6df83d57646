// Package userids says which ids a user who is not root may use in user namespaces, and gives them to one.
//
// Everybody has one: the user's own, which is root inside. More come from the lines of /etc/subuid and /etc/subgid for
// that user, if the programs newuidmap and newgidmap are installed, which alone may hand them out:
//
//	maps, why := userids.Own()      // why there is only one id; empty if there are more
//	maps.Prepare(cmd.SysProcAttr)   // before the process is started
//	err := maps.Apply(ctx, pid)     // once it is: until then it has to wait
//
// A process that is prepared so has all capabilities in its namespace, also before its ids are mapped.
package userids
