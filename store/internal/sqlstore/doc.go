// Package sqlstore is what the SQL drivers share: the filters, sorts and pages of
// queries as SQL in either dialect, the numbering of migrations, the loop of an export,
// and the comparison of documents.
//
// The package must not know a driver's schema beyond these names: filterable and sortable columns are named as the
// fields are on the wire, the order of insertion is a column "ordinal", and a query names its table by the alias r
// (rollouts), a (attempts), s (spans), u (resources) or w (workers). It executes no SQL.
package sqlstore
