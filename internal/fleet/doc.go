// Package fleet runs the plans of a campaign on other machines. The campaign stays where it was started: it learns,
// chooses what is run next, and believes. Each of its runs is handed to a worker, which has a cluster of its own, and
// comes back as a record.
//
// [Queue] says who runs what. A worker has a run as long as it says that it is at it: its lease. What a worker that is
// gone was running goes to another one; who has lost two workers is at fault itself, and is given up. The first result
// of a run counts, and only that.
//
// [Server] and [Work] are the two ends of the protocol between them: JSON over HTTPS. All requests carry the campaign's
// token, and may be repeated. A worker asks for work, waits up to [pollFor] for it, renews the lease every third of its
// time, sends the compressed record by the digest of its content, and then the result.
//
// What the runs need, a [Bundle], is a list of files with their digests. A worker takes what it does not have yet.
package fleet
