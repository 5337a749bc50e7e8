import {headers} from 'next/headers';

export default async function Page() {
  return <p>{`pass=${(await headers()).get('headgate-pass')}.`}</p>;
}
