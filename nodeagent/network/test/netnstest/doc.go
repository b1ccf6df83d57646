// Package netnstest gives tests network namespaces of their own. Main runs the tests of a package again as root of a
// new user namespace, so that nothing of the machine's network is touched and no rights are needed; where that is
// forbidden, tests that ask for a namespace are skipped.
package netnstest
